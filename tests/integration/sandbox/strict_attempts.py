"""Ways out of the strict language policy that go through the library: what it reads, sets, opens or runs on a cell's word.

Each leaves in `got` what strict code must never hold.
"""

_FAKE_TRACEBACK = """
from types import SimpleNamespace as N
code = N(co_filename='/proc/self/status', co_name='f', co_qualname='f', co_positions=lambda: iter([(1, 1, 0, 1)] * 9))
tb = N(tb_frame=N(f_code=code, f_globals={}, f_locals={}), tb_lineno=1, tb_lasti=0, tb_next=None)
"""
_HOSTILE_NAME = """
class Evil(str):
    def isidentifier(self): return True
    def __format__(self, spec): return 'x=().__class__.__base__'
    def startswith(self, *a): return False
"""
_LYING_PATH = """
class P(str):
    def startswith(self, *a): return False
    def __radd__(self, other): return other + 'x'
    def __ne__(self, other): return False
"""

ATTEMPTS = {
    # names that a foreign class keeps for itself
    "redirect of any name of sys": "import contextlib\nclass R(contextlib.redirect_stdout):\n    _stream = 'modules'\nr = R({})\nwith r:\n    got = r._old_targets[0]",
    "redirect of stderr": "import contextlib\nclass R(contextlib.redirect_stderr):\n    _stream = 'modules'\nr = R({})\nwith r:\n    got = r._old_targets[0]",
    "module kept by catch_warnings": "import warnings\nclass W(warnings.catch_warnings): pass\ngot = W()._module",
    "module by getattr": "import warnings\nclass W(warnings.catch_warnings): pass\ngot = getattr(W(), '_module')",
    "module by vars": "import warnings\nclass W(warnings.catch_warnings): pass\ngot = vars(W())['_module']",
    "module by augmented assignment": "import warnings\nclass W(warnings.catch_warnings): pass\nclass O:\n    def __radd__(self, other):\n        global got\n        got = other\nw = W()\nw._module += O()",
    "module by format": "import warnings\nclass W(warnings.catch_warnings): pass\ngot = '{0._module}'.format(W())",
    "loop kept by a semaphore": "import asyncio\nclass S(asyncio.TaskGroup): pass\nasync def go():\n    async with S() as s:\n        return s._loop\ngot = await go()",
    "private set on a foreign base": "import warnings\nclass W(warnings.catch_warnings): pass\nw = W()\nw._module = 1\ngot = 1",
    "private set by setattr": "import warnings\nclass W(warnings.catch_warnings): pass\nsetattr(W(), '_module', 1)\ngot = 1",
    "private set by object.__setattr__": "import warnings\nclass W(warnings.catch_warnings): pass\nobject.__setattr__(W(), '_module', 1)\ngot = 1",
    "private set on a class in between": "import warnings\nclass A: pass\nclass W(A, warnings.catch_warnings): pass\nA._module = 1\ngot = 1",
    "private set by a dataclass in between": "import warnings\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    _module: object\nclass W(A, warnings.catch_warnings): pass\ngot = W(1)",
    "private set by a namespace": "import warnings\nfrom types import SimpleNamespace\nclass W(SimpleNamespace, warnings.catch_warnings): pass\ngot = W(_module=1)",
    "private set by a cached property": "import warnings\nfrom functools import cached_property\nclass A:\n    @cached_property\n    def _module(self): return 5\nclass W(warnings.catch_warnings): pass\nW.y = A._module\nw = W()\nw.y\ngot = w.__repr__()\nif 'module' not in got: raise PermissionError",
    "private of a parent by super": "import warnings\nclass W(warnings.catch_warnings):\n    def get(self): return super()._module\ngot = W().get()",
    "enum made of a module": "import enum\nclass E(enum.IntEnum):\n    @classmethod\n    def get(cls): return super()._convert_('X', 'sys', lambda name: name == 'maxsize')\ngot = E.get()",
    "what a stand-in stands for": "got = type(open('f', 'wb').raw).stands_for('/proc/self/status')",
    "what the evidence's class stands for": "got = type(evidence).stands_for('/')",
    "super by its own class": "class A:\n    def get(self): return type(super())\ngot = A().get()(type(workspace), type(workspace)('/proc/self/status')).stat()",
    "class that is kept by a hook": "import warnings\nkept = []\nclass Hook:\n    def __set_name__(self, owner, name): kept.append(owner)\ntry:\n    class W(warnings.catch_warnings):\n        _module = 1\n        hook = Hook()\nexcept TypeError: pass\ngot = kept[0]",
    "class that is kept by its parent": "import warnings\nkept = []\nclass A:\n    _module = 1\n    def __init_subclass__(cls): kept.append(cls)\ntry:\n    class W(A, warnings.catch_warnings): pass\nexcept TypeError: pass\ngot = kept[0]",
    "annotated private that is kept by a hook": "import warnings\nkept = []\nclass Hook:\n    def __set_name__(self, owner, name): kept.append(owner)\ntry:\n    class W(warnings.catch_warnings):\n        _module: int\n        hook = Hook()\nexcept TypeError: pass\ngot = kept[0]",
    "base that changes its mind": "import warnings\nfrom types import SimpleNamespace\nturns = [(warnings.catch_warnings,), (int,), (int,)]\nclass W(SimpleNamespace(__mro_entries__=lambda bases: turns.pop())):\n    _module = 1\ngot = W",
    "slots that are read once": "class A:\n    __slots__ = iter(['__reduce_ex__'])\ngot = A",
    "field that names itself": "import dataclasses\nM = dataclasses.MISSING\nclass F(dataclasses.Field):\n    @property\n    def name(self): return 'x=().__class__.__base__'\n    @name.setter\n    def name(self, value): pass\ngot = F",
    "field's class": "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int = 1\nclass F(type(dataclasses.fields(A)[0])): pass\ngot = F",
    "dataclass of a foreign class": "import dataclasses\ngot = dataclasses.dataclass(type(workspace))",
    "order for a foreign class": "import functools, logging\ngot = functools.total_ordering(logging.StreamHandler)",
    "real path of anything": "import os\ngot = os.path.realpath('/proc/self')",
    # patterns
    "pattern of a registered namedtuple": "import abc, collections\nclass Y(collections.namedtuple('X', ['gi_frame'], rename=True), abc.ABC): pass\nY.register(type(x for x in ()))\nmatch (x for x in ()):\n    case Y(f): got = f",
    "namedtuple with a name of the interpreter": "import collections\ngot = collections.namedtuple('X', ['gi_frame'])",
    "pattern of a registered typed namedtuple": "import abc, typing\nclass Y(typing.NamedTuple('X', [('gi_frame', int)]), abc.ABC): pass\nY.register(type(x for x in ()))\nmatch (x for x in ()):\n    case Y(f): got = f",
    "pattern of a class that changes in a guard": "import abc, collections\nclass Z(abc.ABC): pass\nclass Y(collections.namedtuple('X', ['gi_frame'], rename=True), abc.ABC): pass\nY.register(type(x for x in ()))\ndef swap():\n    global Z\n    Z = Y\nmatch (x for x in ()):\n    case _ if swap(): pass\n    case Z(f): got = f\nif got is None: raise PermissionError",
    "pattern inside a pattern": "import abc, collections\nclass Y(collections.namedtuple('X', ['gi_frame'], rename=True), abc.ABC): pass\nY.register(type(x for x in ()))\nmatch [(x for x in ())]:\n    case [Y(f)] | {'a': f}: got = f",
    "pattern by an attribute": "import abc, collections\nclass K:\n    class Y(collections.namedtuple('X', ['gi_frame'], rename=True), abc.ABC): pass\nK.Y.register(type(x for x in ()))\nmatch (x for x in ()):\n    case K.Y(f): got = f",
    # annotations in quotes
    "annotation of a dispatcher": "import functools\ng = workspace.iterdir()\n@functools.singledispatch\ndef d(x): pass\ndef h(x: \"g.gi_frame.f_globals['builtins'].type\"): pass\nd.register(h)\ngot = [*d.registry][-1]",
    "annotation in another module's names": "import functools, json\nfrom types import SimpleNamespace\n@functools.singledispatch\ndef d(x): pass\ndef h(x: 'codecs.builtins.super'): pass\nfunctools.update_wrapper(h, SimpleNamespace(__wrapped__=json.dump))\ntry:\n    d.register(h)\nexcept NameError as e:\n    raise PermissionError from e\ngot = [*d.registry][-1]",
    "annotation in the names of a context manager": "import functools, json, contextlib\nfrom types import SimpleNamespace\nclass F(SimpleNamespace):\n    def __call__(self, x): pass\n@functools.singledispatch\ndef d(x): pass\ntry:\n    d.register(contextlib.contextmanager(F(__wrapped__=json.dump, __name__='f', __annotations__={'x': 'JSONEncoder'})))\nexcept NameError as e:\n    raise PermissionError from e\ngot = [*d.registry][-1]",
    "annotation that is formatted": "import typing, functools\nclass S(str):\n    def __getitem__(self, i): return '*'\n    def __format__(self, spec): return '().__class__.__base__'\n@functools.singledispatch\ndef d(x): pass\ndef h(x: S('int')): pass\nd.register(h)\ngot = [*d.registry]",
    "annotation of a value": "import typing\ngot = typing.Optional['().count']",
    "annotation that takes an item": "import functools\nbox = [int]\n@functools.singledispatch\ndef d(x): pass\ndef h(x: 'box[0].real.getset'): pass\nd.register(h)\ngot = [*d.registry][-1]",
    # names that become source text, or attributes
    "field name that lies, NamedTuple": _HOSTILE_NAME + "import typing, dataclasses\nN = typing.NamedTuple('N', [(Evil('x'), int)])\ngot = dataclasses.dataclass(N)",
    "field name that lies, TypedDict": _HOSTILE_NAME + "import typing, dataclasses\nN = typing.TypedDict('N', {Evil('x'): int})\ngot = dataclasses.dataclass(N)",
    "field name that lies, wraps": _HOSTILE_NAME + "import functools, dataclasses\nfrom types import SimpleNamespace\nclass C: pass\nfunctools.update_wrapper(C, SimpleNamespace(__annotations__={Evil('x'): int}))\ngot = dataclasses.dataclass(C)\nif not dataclasses.fields(got): raise PermissionError",
    "class name that lies": _HOSTILE_NAME + "import typing\ngot = typing.NamedTuple(Evil('x'), [('a', int)])",
    "enum with methods of its own": "import enum, copy\nclass T: pass\nE = enum.Enum('E', {'__reduce_ex__': lambda self, n: (lambda: T, (), (None, {'__match_args__': ('gi_frame',)})), '__copy__': None, 'a': 1})\ngot = copy.copy(E.a)",
    "enum with a private name": "import enum\ngot = enum.Enum('E', '_missing_ a')",
    "enum of pairs": "import enum\ngot = enum.IntEnum('E', [('__reduce__', 1)])",
    "copy of a namespace": "import copy\nfrom types import SimpleNamespace\nclass T: pass\ngot = copy.copy(SimpleNamespace(__reduce_ex__=lambda n: (lambda: T, (), (None, {'__qualname__': 'q'}))))",
    "deep copy of a namespace in a list": "import copy\nfrom types import SimpleNamespace\nclass T: pass\ngot = copy.deepcopy([SimpleNamespace(__reduce_ex__=lambda n: (lambda: T, (), (None, {'__qualname__': 'q'})))])",
    "copy by a proxy": "import copy, weakref\nfrom types import SimpleNamespace\nclass T: pass\nclass F(SimpleNamespace): pass\nf = F(__reduce_ex__=lambda n: (lambda: T, (), (None, {'__qualname__': 'q'})))\ngot = copy.copy(weakref.proxy(f))",
    "copy of a log record": "import copy, logging\nclass T: pass\nclass H(logging.StreamHandler):\n    def emit(self, record):\n        global got\n        try:\n            got = copy.copy(record)\n        except Exception as e:\n            failed.append(e)\nfailed = []\nlog = logging.getLogger('copied')\nlog.addHandler(H())\nlog.error('x', extra={'__reduce_ex__': lambda n: (lambda: T, (), (None, {'__qualname__': 'q'}))})\nraise failed[0]",
    # files
    "path that lies": _LYING_PATH + "got = open(P('/proc/self/status')).read()",
    "listing by a path that lies": _LYING_PATH + "import os\ngot = os.listdir(P('/'))",
    "bytes that decode themselves": _LYING_PATH + "class B(bytes):\n    def decode(self, *a): return P('/proc/self/status')\ngot = open(B(b'no-such')).read()",
    "fspath that lies": _LYING_PATH + "class F:\n    def __fspath__(self): return P('/proc/self/status')\ngot = open(F()).read()",
    "database by a path that lies": _LYING_PATH + "import sqlite3\ntry:\n    sqlite3.connect(P('/proc/x'))\nexcept sqlite3.OperationalError:\n    got = 'tried'",
    "database by attach": "import sqlite3\nc = sqlite3.connect(':memory:')\ngot = c.execute(\"ATTACH DATABASE '/tmp/attached' AS x\").fetchall()",
    "database without its guard": "import sqlite3\nc = sqlite3.connect(':memory:')\ngot = c.set_authorizer(None)",
    "walk that is led elsewhere": "import os\ngot = None\nos.makedirs('walked/a', exist_ok=True)\nfor root, dirs, files in os.walk('walked'):\n    if root != 'walked': got = files, dirs; break\n    dirs[:] = ['../../proc/self']\nif got is None: raise PermissionError",
    "stat beside a descriptor": "import os\ngot = os.stat('x', dir_fd=3)",
    "pathlib glob upwards": "got = list(workspace.glob('../p*'))\nif not got: raise PermissionError",
    "glob upwards": "import glob\ngot = glob.glob('../p*')\nif not got: raise PermissionError",
    "xml by a descriptor": "import xml.etree.ElementTree as ET\ntry:\n    ET.parse(0)\nexcept ET.ParseError:\n    got = 'opened'",
    "xml tree parses any file": "import xml.etree.ElementTree as ET\nopen('a.xml', 'w').write('<a/>')\nt = ET.parse('a.xml')\ntry:\n    t.parse('/proc/self/status')\nexcept ET.ParseError:\n    got = 'opened'",
    "xml tree writes any file": "import xml.etree.ElementTree as ET\nopen('a.xml', 'w').write('<a/>')\nt = ET.parse('a.xml')\ntry:\n    t.write('/workspace/../tmp/../evil')\nexcept OSError as e:\n    if 'strict' in str(e): raise\n    got = 'tried'",
    "xml tree's class": "import xml.etree.ElementTree as ET\nopen('a.xml', 'w').write('<a/>')\ntry:\n    type(ET.parse('a.xml'))(file='/proc/self/status')\nexcept ET.ParseError:\n    got = 'opened'",
    "xml canonical form of any file": "import xml.etree.ElementTree as ET\ntry:\n    ET.canonicalize(from_file='/proc/self/status')\nexcept ET.ParseError:\n    got = 'opened'",
    "source line of any file": _FAKE_TRACEBACK + "import traceback\nshown = ''.join(traceback.format_exception(ValueError, ValueError(), tb))\nif 'Name:' not in shown: raise PermissionError\ngot = shown",
    "source line of any file by logging": _FAKE_TRACEBACK + "import logging, io\nout = io.StringIO()\nlog = logging.getLogger('lines')\nlog.addHandler(logging.StreamHandler(out))\nlog.error('x', exc_info=(ValueError, ValueError(), tb))\nif 'Name:' not in out.getvalue(): raise PermissionError\ngot = out.getvalue()",
    # formats
    "formatter's class": "import logging\nlogging.basicConfig(format='%(message)s')\nF = type(logging.getLogger().handlers[0].formatter)\ngot = F('{x.gi_frame}', style='{')",
    "str.format by super": "class S(str):\n    def get(self, *a): return super().format(*a)\ngot = S('{0.__class__}').get(())",
    "str.format by an alias": "import types\ngot = types.GenericAlias(str, int).format('{0.__class__}', ())",
    "str.format by augmented assignment": "class S(str): pass\nclass O:\n    def __radd__(self, f):\n        global got\n        got = f(())\n        return f\ns = S('{0.__class__}')\ns.format += O()",
    "refused method by augmented assignment": "class E(Exception): pass\nclass O:\n    def __radd__(self, f):\n        global got\n        got = f\ne = E()\ne.with_traceback += O()",
    # classes of classes
    "metaclass by an alias": "class M(type[int]): pass\ngot = M",
    "metaclass by typing": "import typing\nclass M(typing.Type[int]): pass\ngot = M",
    "metaclass by a namespace": "import typing\nfrom types import SimpleNamespace\nclass M(SimpleNamespace(__mro_entries__=lambda b: (typing.get_origin(typing.Type[int]),))): pass\ngot = M",
    "type by its origin": "import typing\ngot = typing.get_origin(typing.Type[int])('X', (), {})",
    "type by its arguments": "import typing\ngot = typing.get_args(type | None)[0]('X', (), {})",
    "parents by an alias": "import types\ngot = types.GenericAlias(type(workspace), int).mro()[1]('/proc/self/status').read_text()",
    # the event loop
    "loop of a task": "import asyncio\nasync def go(): return asyncio.current_task().get_loop()\ngot = await go()",
    "loop of a future": "import asyncio\nasync def go():\n    f = asyncio.gather(asyncio.sleep(0))\n    await f\n    return f.get_loop()\ngot = await go()",
    "frames of a task": "import asyncio\nasync def go(): return asyncio.current_task().get_stack()\ngot = await go()",
    "frames of a task by its class": "import asyncio\nasync def go():\n    t = asyncio.current_task()\n    return type(t).get_stack(t)\ngot = await go()",
    "frames of a task by getattr": "import asyncio\nasync def go(): return getattr(asyncio.current_task(), 'get_stack')()\ngot = await go()",
}  # fmt: skip

#: Ordinary code close to the ways out: what it prints.
ORDINARY = {
    "positional patterns": ("from dataclasses import dataclass\nfrom collections import namedtuple\n@dataclass\nclass A:\n    x: int\n    path: str\nB = namedtuple('B', 'y')\nclass I(int): pass\ndef see(v):\n    match v:\n        case A(1, path=p): return p\n        case A(x, p): return x, p\n        case B(y): return y\n        case I(n): return n + 1\n        case [str(s), int(n)]: return s * n\n        case {'a': A(path=p)}: return p.upper()\nprint(see(A(1, 'p')), see(A(2, 'q')), see(B(3)), see(I(4)), see(['a', 2]), see({'a': A(0, 'z')}))", "p (2, 'q') 3 5 aa Z"),
    "own __match_args__": ("class V:\n    __match_args__ = ('x', 'y')\n    def __init__(self): self.x, self.y = 1, 2\nmatch V():\n    case V(a, b): print(a, b)", "1 2"),
    "privates below a parser": ("from html.parser import HTMLParser\nclass P(HTMLParser):\n    def __init__(self):\n        super().__init__()\n        self._depth = 0\n        self.__seen = []\n    def handle_starttag(self, tag, attrs):\n        self._depth += 1\n        self.__seen.append(tag)\n        self._note()\n    def _note(self): self.noted = self.__seen[-1]\np = P(); p.feed('<a><b>')\nprint(p._depth, p.noted)", "2 b"),
    "privates below Generic, ABC, Thread, Exception, dict": ("import threading\nfrom abc import ABC\nfrom typing import Generic, TypeVar, Protocol\nT = TypeVar('T')\nclass S(Generic[T]):\n    def __init__(self): self._items: list[T] = []; self._name = 's'\nclass A(ABC):\n    def __init__(self): self._x = 1\nclass W(threading.Thread):\n    def __init__(self):\n        super().__init__()\n        self._out = []\n    def run(self): self._out.append(1)\nclass E(Exception):\n    def __init__(self): super().__init__('m'); self._code = 5\nclass D(dict):\n    def __init__(self): super().__init__(); self._hits = 7\nclass Q(Protocol):\n    def size(self) -> int: ...\nw = W(); w.start(); w.join()\nprint(S[int]()._items, S()._name, A()._x, w._out, E()._code, D()._hits)", "[] s 1 [1] 5 7"),
    "enum by call": ("import enum\nE = enum.Enum('E', 'A B')\nF = enum.IntEnum('F', {'x': 5})\nG = enum.Enum('G', [('a', 1), ('b', 2)])\nprint(E.B.value, F.x + 1, G.b.name, [m.name for m in enum.Flag('H', ['p', 'q'])])", "2 6 b ['p', 'q']"),
    "copies": ("import copy, collections, datetime, decimal, enum\nfrom dataclasses import dataclass, field\nfrom types import SimpleNamespace\n@dataclass\nclass A:\n    x: list\n@dataclass(frozen=True, slots=True)\nclass B:\n    y: int\nclass C:\n    def __copy__(self): return 'copied'\nclass E(enum.Enum):\n    a = 1\na = A([1]); b = copy.deepcopy(a); b.x.append(2)\nP = collections.namedtuple('P', 'q')\nkept = [copy.deepcopy(v) == v for v in (B(1), SimpleNamespace(a=1), P(2), E.a, datetime.date(2026, 1, 1), decimal.Decimal('1.5'), collections.Counter('aa'), collections.OrderedDict(a=1))]\nprint(a.x, b.x, copy.copy(C()), all(kept))", "[1] [1, 2] copied True"),
    "typed names by call": ("import typing\nN = typing.NamedTuple('N', [('a', int)])\nD = typing.TypedDict('D', {'in-reply-to': str}, total=False)\nclass K(typing.NamedTuple):\n    b: int = 2\nclass R(typing.TypedDict):\n    c: int\nprint(N(1).a, D({'in-reply-to': 'x'}), K(), R(c=1), typing.get_origin(list[int]) is list, typing.get_args(dict[str, int]))", "1 {'in-reply-to': 'x'} K(b=2) {'c': 1} True (<class 'str'>, <class 'int'>)"),
    "annotations in quotes": ("import functools, typing, collections.abc, datetime\nfrom dataclasses import dataclass\n@functools.singledispatch\ndef show(x): return 'any'\n@show.register\ndef _(x: 'int'): return 'int'\n@show.register\ndef _(x: 'collections.abc.Mapping'): return 'map'\n@show.register\ndef _(x: 'datetime.date'): return 'date'\n@dataclass\nclass V:\n    label: 'typing.Optional[str]' = None\n    many: 'list[typing.Literal[\"a\", 1]] | None' = None\nprint(show(1), show({}), show(datetime.date.today()), predict(V, text='x').label)", "int map date yes"),
    "wraps and cached properties": ("import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(*a): return f(*a)\n    return inner\n@deco\n@deco\ndef named(x: int) -> int:\n    'doc'\n    return x\nclass L:\n    n = 0\n    @functools.cached_property\n    def v(self):\n        self.n += 1\n        return self.n\nl = L()\nprint(named(1), named.__name__, named.__doc__, l.v, l.v, l.n)", "1 named doc 1 1 1"),
    "redirections, nested and again": ("import contextlib, io, sys\na, b, c = io.StringIO(), io.StringIO(), io.StringIO()\nr = contextlib.redirect_stdout(a)\nwith r:\n    print('1')\n    with contextlib.redirect_stdout(b), contextlib.redirect_stderr(c):\n        print('2')\n        print('e', file=sys.stderr)\nwith r as out:\n    print('3')\nprint(a.getvalue().split(), b.getvalue().split(), c.getvalue().split(), out is a)", "['1', '3'] ['2'] ['e'] True"),
    "xml files": ("import xml.etree.ElementTree as ET\n(workspace / 'o.xml').write_text('<r><i>1</i></r>')\nt = ET.parse(workspace / 'o.xml')\nt.getroot().find('i').text = '2'\nt.write('p.xml')\nprint(ET.parse(open('p.xml')).getroot()[0].text, ET.canonicalize(from_file='p.xml'))", "2 <r><i>2</i></r>"),
    "walks that are pruned": ("import os\nos.makedirs('tree/a/b', exist_ok=True); os.makedirs('tree/c', exist_ok=True)\nopen('tree/c/f', 'w').close()\nseen = []\nfor root, dirs, files in os.walk('tree'):\n    dirs[:] = sorted(d for d in dirs if d != 'a')\n    seen.append((root, files))\nprint(seen, [r for r, d, f in os.walk('tree', topdown=False)][-1])", "[('tree', []), ('tree/c', ['f'])] tree"),
    "databases": ("import sqlite3\nc = sqlite3.connect('d.db')\nc.execute('create table if not exists t (a)')\nc.execute('insert into t values (1)')\nc.commit()\nc.execute('vacuum')\nc.execute(\"attach ':memory:' as m\")\nprint(c.execute('select count(*) from t').fetchone()[0] > 0)", "True"),
    "tasks": ("import asyncio\nasync def work(n, gate):\n    async with gate:\n        await asyncio.sleep(0)\n        return n\nasync def main():\n    gate = asyncio.Semaphore(2)\n    async with asyncio.TaskGroup() as group:\n        tasks = [group.create_task(work(n, gate), name=f't{n}') for n in range(3)]\n    me = asyncio.current_task()\n    return [t.result() for t in tasks], tasks[0].get_name(), me.done(), await asyncio.gather(*(work(n, gate) for n in range(2)))\nprint(await main())", "([0, 1, 2], 't0', False, [0, 1])"),
    "types of types": ("class M: pass\ndef f(k: type[M] | None) -> 'type | None': return k\nprint(type(M) is type, isinstance(M, type), f(M) is M, type(3).__name__)", "True True True int"),
    "formats": ("class S(str):\n    def both(self, *a): return super().format(*a)\nprint(S('{}-{0.real}'.replace('{}', '{1}')).both(3, 'a'), str.format('{:>3}', 1), '{a}'.format_map({'a': 1}), format(3.14159, '.2f'))", "a-3   1 1 3.14"),
    "augmented names like modules": ("class A:\n    def __init__(self): self.time = 1; self.path = 'a'; self._n = 0\na = A()\na.time += 2; a.path += 'b'; a._n += 1\nprint(a.time, a.path, a._n)", "3 ab 1"),
}  # fmt: skip
