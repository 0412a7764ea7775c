"""Ordinary analysis code of the kind models write, as data, with what it prints under each language policy.

Run as a program it writes the table into sandbox/README.md.
"""

from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[3] / "sandbox" / "README.md"
BEGIN, END = "<!-- language table: begin -->", "<!-- language table: end -->"

EVIDENCE = (
    "2026-01-01 INFO start\n2026-01-02 ERROR disk full\n2026-01-02 WARN slow\n2026-01-03 ERROR disk full\n"
)


@dataclass(frozen=True)
class Snippet:
    kind: str
    code: str
    # The whole of what it prints, without the last line's end.
    prints: str
    # A part of strict's refusal; empty: it runs under strict as well.
    refused: str = ""
    instead: str = ""


SNIPPETS = (
    Snippet("dataclass", """
from dataclasses import dataclass, field, asdict
@dataclass(order=True)
class Finding:
    score: float
    name: str = "x"
    tags: list[str] = field(default_factory=list)
f = Finding(0.5, "a", ["t"])
f.tags.append("u")
print(asdict(f), Finding(0.1) < f)""", "{'score': 0.5, 'name': 'a', 'tags': ['t', 'u']} True"),
    Snippet("frozen dataclass with __post_init__", """
from dataclasses import dataclass
@dataclass(frozen=True)
class Span:
    start: int
    end: int
    length: int = 0
    def __post_init__(self):
        object.__setattr__(self, "length", self.end - self.start)
print(Span(2, 9))""", "Span(start=2, end=9, length=7)"),
    Snippet("`d[k] += 1`", """
counts = {}
for word in "a b a".split():
    counts.setdefault(word, 0)
    counts[word] += 1
print(counts)""", "{'a': 2, 'b': 1}"),
    Snippet("`self.n += 1`", """
class Counter2:
    def __init__(self):
        self.n = 0
    def hit(self):
        self.n += 1
        return self
print(Counter2().hit().hit().n)""", "2"),
    Snippet("`type(e).__name__`", """
try:
    {}["x"]
except Exception as e:
    print(type(e).__name__, e)""", "KeyError 'x'"),
    Snippet("f-string", "x = 3.14159\nprint(f'{x:.2f} {x!r:>10} {\"a\":*^5} {x=:.1f}')", "3.14    3.14159 **a** x=3.1"),
    Snippet("str.format", "print('{0}-{name:>5}|{1[k]}|{2.real}'.format(1, {'k': 2}, 3, name='n'))", "1-    n|2|3"),
    Snippet("%-formatting", "print('%s has %d (%.1f%%)' % ('a', 3, 12.34))", "a has 3 (12.3%)"),
    Snippet("match", """
def kind(value):
    match value:
        case {"type": "error", "code": int(code)} if code > 400: return f"bad {code}"
        case [first, *rest]: return f"list {first} {len(rest)}"
        case str() | bytes(): return "text"
        case None: return "nothing"
        case _: return "other"
print(kind({"type": "error", "code": 500}), kind([1, 2, 3]), kind("x"), kind(None), kind(4))""",
        "bad 500 list 1 2 text nothing other"),
    Snippet("match on a class", """
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    y: int
match Point(1, 2):
    case Point(x=1, y=b): print("on one", b)""", "on one 2"),
    Snippet("generator function", """
def pairs(items):
    for i, item in enumerate(items):
        yield i, item
print(list(pairs("ab")))""", "[(0, 'a'), (1, 'b')]"),
    Snippet("yield from, send", """
def inner():
    got = yield 1
    yield got
def outer():
    yield from inner()
g = outer()
print(next(g), g.send(5))""", "1 5"),
    Snippet("generator expression", "print(sum(n * n for n in range(10) if n % 2))", "165"),
    Snippet("contextmanager", """
from contextlib import contextmanager, suppress
@contextmanager
def step(name):
    print("in", name)
    try:
        yield name.upper()
    finally:
        print("out")
with step("a") as up, suppress(ValueError):
    print(up)
    raise ValueError""", "in a\nA\nout"),
    Snippet("__enter__/__exit__", """
class Timer:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): return kind is ValueError
with Timer() as t:
    raise ValueError
print("swallowed")""", "swallowed"),
    Snippet("async and gather", """
import asyncio
async def work(n):
    await asyncio.sleep(0)
    return n * 2
print(await asyncio.gather(*(work(n) for n in range(3))))""", "[0, 2, 4]"),
    Snippet("asyncio.run", """
import asyncio
async def main():
    async with asyncio.timeout(5):
        return await asyncio.wait_for(asyncio.sleep(0, "done"), 1)
print(asyncio.run(main()))""", "done"),
    Snippet("async for, async with, semaphore", """
import asyncio
async def ticks():
    for n in range(3):
        yield n
async def main():
    gate = asyncio.Semaphore(1)
    async with gate:
        return [n async for n in ticks()]
print(await main())""", "[0, 1, 2]"),
    Snippet("nonlocal", """
def counter():
    n = 0
    def bump():
        nonlocal n
        n += 1
        return n
    return bump
bump = counter(); bump()
print(bump())""", "2"),
    Snippet("walrus", "data = [1, 5, 9]\nprint([y for x in data if (y := x * 2) > 4], (n := len(data)))", "[10, 18] 3"),
    Snippet("star-unpacking", "first, *middle, last = range(5)\n(a, (b, c)) = (1, (2, 3))\nprint(first, middle, last, a + b + c, [*middle, *'xy'], {**{'a': 1}, 'b': 2})",
        "0 [1, 2, 3] 4 6 [1, 2, 3, 'x', 'y'] {'a': 1, 'b': 2}"),
    Snippet("lambda as sort key", "rows = [('b', 2), ('a', 2), ('c', 9)]\nprint(sorted(rows, key=lambda r: (-r[1], r[0])), max(rows, key=lambda r: r[1]))",
        "[('c', 9), ('a', 2), ('b', 2)] ('c', 9)"),
    Snippet("Counter, defaultdict, deque", """
from collections import Counter, defaultdict, deque
c = Counter("banana"); c.update("na")
d = defaultdict(list)
for k, v in [(1, "a"), (1, "b")]: d[k].append(v)
q = deque([1, 2, 3], maxlen=2); q.append(4)
print(c.most_common(2), dict(d), list(q))""", "[('a', 4), ('n', 3)] {1: ['a', 'b']} [3, 4]"),
    Snippet("namedtuple, OrderedDict, ChainMap", """
from collections import namedtuple, OrderedDict, ChainMap
P = namedtuple("P", "x y")
p = P(1, 2)._replace(y=5)
print(p, p._asdict(), OrderedDict(a=1), ChainMap({"a": 1}, {"b": 2})["b"])""",
        "P(x=1, y=5) {'x': 1, 'y': 5} OrderedDict([('a', 1)]) 2"),
    Snippet("regex", r"""
import re
line = "2026-01-02 ERROR code=42"
m = re.search(r"(?P<level>[A-Z]+) code=(\d+)", line)
print(m.group("level"), m.group(2), m.groupdict(), re.sub(r"\d", "#", line), re.findall(r"\d+", line))""",
        "ERROR 42 {'level': 'ERROR'} ####-##-## ERROR code=## ['2026', '01', '02', '42']"),
    Snippet("csv", """
import csv, io
rows = list(csv.DictReader(io.StringIO("a,b\\n1,2\\n3,4\\n")))
out = io.StringIO()
w = csv.writer(out); w.writerow(["x", "y,z"])
print([int(r["a"]) for r in rows], out.getvalue().strip())""", '[1, 3] x,"y,z"'),
    Snippet("json", """
import json
class Enc(json.JSONEncoder):
    def default(self, o): return sorted(o) if isinstance(o, set) else super().default(o)
print(json.dumps({"b": {2, 1}}, cls=Enc), json.loads('{"x": [1, null]}')["x"])""", '{"b": [1, 2]} [1, None]'),
    Snippet("json errors", """
import json
try:
    json.loads("{bad")
except json.JSONDecodeError as e:
    print(e.msg, e.lineno)""", "Expecting property name enclosed in double quotes 1"),
    Snippet("datetime", """
from datetime import datetime, timedelta, timezone
t = datetime(2026, 1, 31, 12, tzinfo=timezone.utc) + timedelta(days=1)
print(t.isoformat(), t.strftime("%d.%m.%Y"), (t - datetime.fromisoformat("2026-01-01T00:00:00+00:00")).days)""",
        "2026-02-01T12:00:00+00:00 01.02.2026 31"),
    Snippet("itertools", """
import itertools as it
print([(k, len(list(g))) for k, g in it.groupby("aabc")], list(it.chain([1], [2])), list(it.islice(it.count(), 2)), list(it.pairwise("abc")), len(list(it.product("ab", repeat=2))))""",
        "[('a', 2), ('b', 1), ('c', 1)] [1, 2] [0, 1] [('a', 'b'), ('b', 'c')] 4"),
    Snippet("statistics", "import statistics as st\nprint(st.mean([1, 2, 3]), st.median([1, 9, 3]), round(st.stdev([1, 2, 4]), 3), st.mode('aab'))", "2 3 1.528 a"),
    Snippet("textwrap", "import textwrap\nprint(textwrap.dedent('''\n  a\n  b''').strip(), textwrap.shorten('one two three', 9), textwrap.fill('aa bb', 3))", "a\nb one [...] aa\nbb"),
    Snippet("heapq", "import heapq\nh = [5, 1, 4]\nheapq.heapify(h); heapq.heappush(h, 0)\nprint(heapq.heappop(h), heapq.nlargest(2, h))", "0 [5, 4]"),
    Snippet("enum", """
from enum import Enum, auto
class Level(Enum):
    LOW = auto()
    HIGH = auto()
    @property
    def short(self): return self.name[0]
print(Level.HIGH.value, Level["LOW"].short, [l.name for l in Level], Level(2) is Level.HIGH)""", "2 L ['LOW', 'HIGH'] True"),
    Snippet("decimal, fractions", "from decimal import Decimal, getcontext\nfrom fractions import Fraction\ngetcontext().prec = 6\nprint(Decimal('0.1') + Decimal('0.2'), Decimal(1) / 3, Fraction(1, 3) + Fraction(1, 6))", "0.3 0.333333 1/2"),
    Snippet("pathlib in the workspace", """
from pathlib import Path
out = workspace / "out"
out.mkdir(exist_ok=True)
(out / "a.txt").write_text("hi\\n")
print(sorted(p.name for p in out.glob("*.txt")), (out / "a.txt").read_text().strip(), Path("x/y.tar.gz").suffix, (out / "a.txt").exists())""",
        "['a.txt'] hi .gz True"),
    Snippet("open() in the workspace", """
with open("notes.txt", "w", encoding="utf-8") as f:
    f.write("one\\ntwo\\n")
with open(workspace / "notes.txt") as f:
    print([line.rstrip() for line in f])""", "['one', 'two']"),
    Snippet("os, os.path, glob", """
import os, glob
os.makedirs("d/e", exist_ok=True)
open(os.path.join("d", "e", "f.csv"), "w").close()
print(os.path.exists("d/e/f.csv"), os.path.splitext("a.csv"), os.listdir("d"), glob.glob("d/*/*.csv"))""",
        "True ('a', '.csv') ['e'] ['d/e/f.csv']"),
    Snippet("os.walk", """
import os
os.makedirs("w/x", exist_ok=True)
print([os.path.basename(root) for root, dirs, files in os.walk("w")])""", "['w', 'x']"),
    Snippet("zip, enumerate, reversed", "print(list(zip('ab', [1, 2], strict=True)), list(enumerate('ab', 1)), list(reversed([1, 2])), dict(zip('ab', range(2))))",
        "[('a', 1), ('b', 2)] [(1, 'a'), (2, 'b')] [2, 1] {'a': 0, 'b': 1}"),
    Snippet("set operations", "a, b = {1, 2, 3}, {2, 3, 4}\na |= {9}\nprint(a & b, a - b, sorted(a ^ b), a >= {1}, frozenset([1]))", "{2, 3} {1, 9} [1, 4, 9] True frozenset({1})"),
    Snippet("slices", "x = list(range(10))\nx[2:4] = [0]\ndel x[-1]\nprint(x[::-3], 'abc'[-2:], x[1:3])", "[8, 5, 1] bc [1, 0]"),
    Snippet("try/except/else/finally", """
def f(x):
    try:
        return 1 / x
    except (ZeroDivisionError, TypeError) as e:
        return f"no: {e}"
    else:
        pass
    finally:
        print("done", end=" ")
print(f(0), f(2))""", "done done no: division by zero 0.5"),
    Snippet("raise from", """
try:
    try:
        int("x")
    except ValueError as e:
        raise RuntimeError("wrapped") from e
except RuntimeError as e:
    print(e, repr(e.__cause__))""", "wrapped ValueError(\"invalid literal for int() with base 10: 'x'\")"),
    Snippet("except*", """
try:
    raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])
except* ValueError as group:
    print([str(e) for e in group.exceptions])
except* KeyError as group:
    print(len(group.exceptions))""", "['a']\n1"),
    Snippet("own exception class", """
class ParseError(ValueError):
    def __init__(self, line, message):
        super().__init__(message)
        self.line = line
try:
    raise ParseError(3, "bad")
except ParseError as e:
    print(e, e.line, e.args)""", "bad 3 ('bad',)"),
    Snippet("inheritance, super, property", """
class Base:
    registry = []
    def __init__(self, name): self._name = name; Base.registry.append(name)
    @property
    def name(self): return self._name.title()
    @name.setter
    def name(self, value): self._name = value
class Child(Base):
    def __init__(self, name, n=0):
        super().__init__(name)
        self.n = n
    def __repr__(self): return f"{type(self).__name__}({self.name!r}, {self.n})"
    def __eq__(self, other): return isinstance(other, Child) and self.n == other.n
    def __hash__(self): return hash(self.n)
c = Child("ann", 2); c.name = "bob"
print(c, c == Child("x", 2), len({c, Child("y", 2)}), Base.registry)""", "Child('Bob', 2) True 1 ['ann', 'x', 'y']"),
    Snippet("classmethod, staticmethod, operators", """
class Vec:
    __slots__ = ("x", "y")
    def __init__(self, x, y): self.x, self.y = x, y
    @classmethod
    def zero(cls): return cls(0, 0)
    @staticmethod
    def unit(): return Vec(1, 1)
    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)
    def __iter__(self): return iter((self.x, self.y))
    def __len__(self): return 2
    def __getitem__(self, i): return (self.x, self.y)[i]
    def __call__(self): return "called"
    def __bool__(self): return bool(self.x)
v = Vec.zero() + Vec.unit()
print(list(v), len(v), v[0], v(), bool(v))""", "[1, 1] 2 1 called True"),
    Snippet("private attributes", """
class Account:
    def __init__(self): self.__balance = 1; self._log = []
    def pay(self, n): self.__balance += n; self._log.append(n); return self.__balance
a = Account()
print(a.pay(4), a._log)""", "5 [4]"),
    Snippet("_private helpers", "def _clean(text): return text.strip().lower()\n_cache = {}\n_cache['x'] = _clean(' A ')\nprint(_cache)", "{'x': 'a'}"),
    Snippet("functools", """
from functools import lru_cache, reduce, partial, cached_property, wraps
@lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def shout(f):
    @wraps(f)
    def inner(*args, **kwargs): return str(f(*args, **kwargs)) + "!"
    return inner
@shout
def hello(name): return "hello " + name
class Lazy:
    @cached_property
    def value(self): return 7
print(fib(30), fib.cache_info().misses, reduce(lambda a, b: a * b, [1, 2, 3]), partial(pow, 2)(5), hello("x"), hello.__name__, Lazy().value)""",
        "832040 31 6 32 hello x! hello 7"),
    Snippet("singledispatch, total_ordering", """
from functools import singledispatch, total_ordering
@singledispatch
def show(x): return "any"
@show.register
def _(x: int): return "int"
@total_ordering
class V:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == o.n
    def __lt__(self, o): return self.n < o.n
print(show("a"), show(1), V(2) >= V(1))""", "any int True"),
    Snippet("typing annotations", """
from typing import Any, Optional, Iterable, TypedDict, Literal
from collections.abc import Callable, Iterator
class Row(TypedDict, total=False):
    name: str
    n: int
limit: int = 3
names: list[str] = []
def pick(rows: Iterable[Row], key: Callable[[Row], Any], default: Optional[int] = None, *, mode: Literal["a", "b"] = "a") -> "Iterator[Row] | None":
    return max(rows, key=key, default=default)
print(pick([{"name": "x", "n": 1}, {"name": "y", "n": 2}], lambda r: r["n"]), limit)""", "{'name': 'y', 'n': 2} 3"),
    Snippet("NamedTuple class", """
from typing import NamedTuple
class Hit2(NamedTuple):
    line: int
    text: str = ""
    def short(self): return self.text[:2]
h = Hit2(3, "abc")
line, text = h
print(h, h.short(), line, h._replace(line=4).line)""", "Hit2(line=3, text='abc') ab 3 4"),
    Snippet("abc", """
from abc import ABC, abstractmethod
class Rule(ABC):
    @abstractmethod
    def check(self, x): ...
class Big(Rule):
    def check(self, x): return x > 3
try:
    Rule()
except TypeError as e:
    print("abstract", Big().check(4))""", "abstract True"),
    Snippet("global", "total = 0\ndef add(n):\n    global total\n    total += n\nadd(2); add(3)\nprint(total)", "5"),
    Snippet("del, assert", "x = {'a': 1, 'b': 2}\ndel x['a']\nassert x == {'b': 2}, 'no'\ny = 1\ndel y\nprint('y' in globals())", "False"),
    Snippet("chained comparison, ternary, in", "n = 5\nprint(1 < n <= 5 != 6, 'big' if n > 3 else 'small', n in (1, 5), not n, n is None)", "True big True False False"),
    Snippet("nested comprehensions", "m = [[1, 2], [3, 4]]\nprint([x for row in m for x in row if x > 1], {r[0]: [c * 2 for c in r] for r in m}, [list(c) for c in zip(*m)])", "[2, 3, 4] {1: [2, 4], 3: [6, 8]} [[1, 3], [2, 4]]"),
    Snippet('`__name__ == "__main__"`', 'def main():\n    print("ran")\nif __name__ == "__main__":\n    main()', "ran"),
    Snippet("print(sep=, end=, file=)", "import sys, io\nbuf = io.StringIO()\nprint(1, 2, sep='-', end='!', file=buf)\nprint('err', file=sys.stderr)\nsys.stdout.write('out\\n')\nprint(buf.getvalue())", "out\n1-2!"),
    Snippet("redirect_stdout", "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n    print('caught')\nprint(b.getvalue().strip().upper())", "CAUGHT"),
    Snippet("string methods", "s = ' Hello, World '\nprint(s.strip().lower().replace('o', '0').split(', '), s.count('l'), 'a-b'.partition('-'), 'x'.zfill(3), s.find('W'), 'ab'.join('12'), 'Ab'.swapcase().isupper(), s.strip().startswith('Hello'), 'a'.translate(str.maketrans('a', 'b')))",
        "['hell0', 'w0rld'] 3 ('a', '-', 'b') 00x 8 1ab2 False True b"),
    Snippet("bytes", "b = 'é'.encode()\nprint(b, b.hex(), bytes([65, 66]).decode(), int.from_bytes(b'\\x01\\x00', 'big'), bytearray(b'ab')[0])", "b'\\xc3\\xa9' c3a9 AB 256 97"),
    Snippet("struct, array", "import struct, array\nprint(struct.unpack('<HI', struct.pack('<HI', 1, 2)), array.array('i', [1, 2])[1])", "(1, 2) 2"),
    Snippet("hashlib", "import hashlib\nprint(hashlib.sha256(b'a').hexdigest()[:8], hashlib.md5('x'.encode()).hexdigest()[:6])", "ca978112 9dd4e4"),
    Snippet("base64, binascii", "import base64\nprint(base64.b64encode(b'hi').decode(), base64.b64decode('aGk='), base64.urlsafe_b64encode(b'??'))", "aGk= b'hi' b'Pz8='"),
    Snippet("random with a seed", "import random\nrng = random.Random(7)\nrandom.seed(7)\na = [1, 2, 3, 4]\nrng.shuffle(a)\nprint(sorted(a), random.random() == random.Random(7).random(), len(random.sample(range(9), 3)), rng.choice('aa'))", "[1, 2, 3, 4] True 3 a"),
    Snippet("sqlite3 in memory", """
import sqlite3
con = sqlite3.connect(":memory:")
con.row_factory = sqlite3.Row
con.execute("create table t (name text, n int)")
con.executemany("insert into t values (?, ?)", [("a", 1), ("b", 5), ("a", 3)])
print([dict(r) for r in con.execute("select name, sum(n) as s from t group by name order by s")])""",
        "[{'name': 'a', 's': 4}, {'name': 'b', 's': 5}]"),
    Snippet("zlib, gzip", "import zlib, gzip\ndata = evidence['app.log'].text.encode()\nprint(zlib.decompress(zlib.compress(data)) == data, gzip.decompress(gzip.compress(data)) == data, zlib.crc32(b'a'))", "True True 3904355907"),
    Snippet("gzip.open in the workspace", "import gzip\nwith gzip.open(workspace / 'a.gz', 'wt') as f:\n    f.write('packed')\nwith gzip.open('a.gz', 'rt') as f:\n    print(f.read())", "packed"),
    Snippet("xml.etree", """
import xml.etree.ElementTree as ET
root = ET.fromstring("<r><i id='1'>a</i><i id='2'>b</i></r>")
root.find("i").text = "z"
print([(e.get("id"), e.text) for e in root.iter("i")], ET.tostring(root[1]).decode())""",
        "[('1', 'z'), ('2', 'b')] <i id=\"2\">b</i>"),
    Snippet("html.parser", """
from html.parser import HTMLParser
import html
class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []
    def handle_starttag(self, tag, attrs):
        if tag == "a": self.found.append(dict(attrs)["href"])
p = Links(); p.feed('<a href="x">t</a>')
print(p.found, html.unescape("&lt;"))""", "['x'] <"),
    Snippet("difflib", "import difflib\nprint(difflib.get_close_matches('aple', ['apple', 'pear']), [l for l in difflib.unified_diff(['a'], ['b'], lineterm='')][-1], round(difflib.SequenceMatcher(None, 'ab', 'abc').ratio(), 2))", "['apple'] +b 0.8"),
    Snippet("bisect", "import bisect\nx = [1, 3, 5]\nbisect.insort(x, 4)\nprint(bisect.bisect_left(x, 3), x)", "1 [1, 3, 4, 5]"),
    Snippet("collections.abc", "from collections.abc import Mapping, Iterable\nprint(isinstance({}, Mapping), isinstance('a', Iterable), isinstance(3, Iterable))", "True True False"),
    Snippet("thread pool", """
from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(max_workers=2) as pool:
    futures = {pool.submit(pow, 2, n): n for n in range(3)}
    print(sorted(f.result() for f in as_completed(futures)), list(pool.map(str, [1, 2])))""", "[1, 2, 4] ['1', '2']"),
    Snippet("threading", "import threading\nout, lock = [], threading.Lock()\ndef work(n):\n    with lock: out.append(n)\nts = [threading.Thread(target=work, args=(n,)) for n in range(3)]\nfor t in ts: t.daemon = True; t.start()\nfor t in ts: t.join()\nprint(sorted(out))", "[0, 1, 2]"),
    Snippet("time.perf_counter", "import time\nt = time.perf_counter()\ntime.sleep(0.001)\nprint(time.perf_counter() - t > 0.0005, time.strftime('%Y', time.gmtime(0)))", "True 1970"),
    Snippet("operator", "from operator import itemgetter, attrgetter, methodcaller, add\nimport datetime as dt\nrows = [{'n': 2}, {'n': 1}]\nprint(sorted(rows, key=itemgetter('n')), attrgetter('year')(dt.date(2026, 1, 1)), methodcaller('upper')('a'), add(1, 2))", "[{'n': 1}, {'n': 2}] 2026 A 3"),
    Snippet("getattr, hasattr, setattr", "class O: pass\no = O()\nsetattr(o, 'x', 1)\nprint(hasattr(o, 'x'), getattr(o, 'y', 'none'), getattr('a', 'upper')(), vars(o), callable(o.x))", "True none A {'x': 1} False"),
    Snippet("isinstance, issubclass, type()", "print(isinstance(1, (int, str)), type([]) is list, issubclass(bool, int), type(1) == type(2), isinstance(int, type), type({}).__name__)", "True True True True True dict"),
    Snippet("map, filter, any, all, round", "print(list(map(int, '12')), list(filter(None, [0, 1])), any([0, 1]), all([]), round(2.675, 2), divmod(7, 2), sum([[1], [2]], []), abs(-1), min(3, 1))", "[1, 2] [1] True True 2.67 (3, 1) [1, 2] 1 1"),
    Snippet("math", "import math\nprint(math.sqrt(16), math.ceil(1.2), round(math.log(10, 2), 3), math.isclose(0.1 + 0.2, 0.3), math.comb(5, 2), math.pi > 3, math.inf > 1)", "4.0 2 3.322 True 10 True True"),
    Snippet("pprint, copy, uuid5", "import copy, pprint, uuid\na = {'x': [1]}\nb = copy.deepcopy(a)\nb['x'].append(2)\npprint.pprint(a)\nprint(b, uuid.uuid5(uuid.NAMESPACE_DNS, 'a').hex[:6])", "{'x': [1]}\n{'x': [1, 2]} 4f3f28"),
    Snippet("urllib.parse, ipaddress", "from urllib.parse import urlparse, parse_qs\nimport ipaddress\nu = urlparse('https://h:1/p?q=1')\nprint(u.netloc, parse_qs(u.query), ipaddress.ip_address('10.0.0.1').is_private)", "h:1 {'q': ['1']} True"),
    Snippet("SimpleNamespace", "from types import SimpleNamespace\nn = SimpleNamespace(a=1)\nn.a += 1\nn.b = 'x'\nprint(n, n.b)", "namespace(a=2, b='x') x"),
    Snippet("string, unicodedata", "import string, unicodedata\nprint(string.ascii_lowercase[:3], string.punctuation[0], string.Template('$a!').substitute(a=1), unicodedata.normalize('NFKD', 'é')[0])", "abc ! 1! e"),
    Snippet("ast.literal_eval", "import ast\nprint(ast.literal_eval(\"{'a': [1, (2, None)]}\"))", "{'a': [1, (2, None)]}"),
    Snippet("logging", "import logging, sys\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')\nlog = logging.getLogger('x')\nlog.info('to stderr')\nprint(log.name)", "x"),
    Snippet("traceback.format_exc", "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    print(traceback.format_exc().splitlines()[-1])", "ZeroDivisionError: division by zero"),
    Snippet("optional import", "try:\n    import numpy as np\nexcept ImportError:\n    np = None\nprint(np is None)", "True"),
    Snippet("iterator class", "class Count:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if self.n <= 0: raise StopIteration\n        self.n -= 1\n        return self.n\nprint(list(Count(3)))", "[2, 1, 0]"),
    Snippet("recursion, default arguments", "def depth(t, d=0): return max([depth(c, d + 1) for c in t] or [d])\ndef f(a, b=2, *args, c=3, **kw): return a, b, args, c, kw\nprint(depth([[[]], []]), f(1, *[5, 6], c=9, z=0))", "2 (1, 5, (6,), 9, {'z': 0})"),
    Snippet("while/else, break, continue, pass", "n = 0\nwhile n < 5:\n    n += 1\n    if n == 2: continue\n    if n == 4: break\nelse:\n    pass\nfor x in []:\n    pass\nelse:\n    print('none', n)", "none 4"),
    Snippet("decorator with arguments", "def times(n):\n    def deco(f):\n        def run(*a): return [f(*a) for _ in range(n)]\n        return run\n    return deco\n@times(2)\ndef one(x): return x\nprint(one('a'))", "['a', 'a']"),
    Snippet("evidence: search, lines, citation", "hits = list(evidence.search(r'ERROR (.*)'))\nprint(len(hits), hits[0].citation, hits[0].groups, evidence['app.log'][1], [l.number for l in evidence['app.log'].lines() if 'WARN' in l])",
        "2 app.log:2 ('disk full',) 2026-01-01 INFO start [3]"),
    Snippet("evidence read by path", "with open('/evidence/app.log') as f:\n    print(sum('ERROR' in line for line in f))", "2"),
    Snippet("predict() with a dataclass", """
from dataclasses import dataclass
@dataclass
class Verdict:
    label: str
    why: "str | None" = None
r = predict(Verdict, text="x")
print(r.label, type(r.value).__name__)""", "yes Verdict"),
    Snippet("last value shown", "{'a': 1}", "{'a': 1}"),
    Snippet("metaclass=ABCMeta", "from abc import ABCMeta, abstractmethod\nclass R(metaclass=ABCMeta):\n    @abstractmethod\n    def f(self): ...\nprint(R.__name__)", "R",
        refused="not", instead="inherit from `abc.ABC`"),
    Snippet("`e.__traceback__`", "try:\n    1 / 0\nexcept Exception as e:\n    print(e.__traceback__.tb_lineno)", "2",
        refused="leads into the interpreter", instead="`traceback.format_exc()`"),
    Snippet("`obj.__dict__`, `obj.__class__`", "class O:\n    def __init__(self): self.a = 1\nprint(O().__dict__, O().__class__.__name__)", "{'a': 1} O",
        refused="leads into the interpreter", instead="`vars(obj)`, `type(obj).__name__`"),
    Snippet("eval", "print(eval('1 + 2'))", "3", refused="eval() is not available", instead="`ast.literal_eval`, `json.loads`"),
    Snippet("tempfile", "import tempfile, os\nwith tempfile.TemporaryDirectory() as d:\n    print(os.path.isdir(d))", "True",
        refused="the module tempfile is not offered", instead="write below `workspace`"),
    Snippet("zipfile", "import zipfile, io\nb = io.BytesIO()\nwith zipfile.ZipFile(b, 'w') as z: z.writestr('a', 'x')\nprint(zipfile.ZipFile(b).namelist())", "['a']",
        refused="the module zipfile is not offered", instead="`gzip`, `zlib`; else the `open` policy"),
    Snippet("inspect", "import inspect\ndef f(a, b=1): pass\nprint(inspect.signature(f))", "(a, b=1)",
        refused="the module inspect is not offered", instead="print what you want to see"),
    Snippet("pickle", "import pickle\nprint(pickle.loads(pickle.dumps({'a': 1})))", "{'a': 1}", refused="the module pickle is not offered", instead="`json`"),
    Snippet("own module in the workspace", "(workspace / 'helper.py').write_text('def f(): return 4')\nimport helper\nprint(helper.f())", "4",
        refused="helper is not in this sandbox", instead="define it in the cell: names last"),
)  # fmt: skip


def table() -> str:
    """Return the table of the README."""
    rows = ["| what the cell uses | `open` | `strict` | what to do instead |", "|---|---|---|---|"]
    for snippet in SNIPPETS:
        kind = snippet.kind.replace("|", "\\|")
        rows.append(f"| {kind} | runs | {'refused' if snippet.refused else 'runs'} | {snippet.instead} |")
    accepted = sum(not snippet.refused for snippet in SNIPPETS)
    return "\n".join(
        (
            f"Of {len(SNIPPETS)} snippets `open` runs all and `strict` {accepted}.",
            "",
            *rows,
        )
    )


def table_in_readme() -> str:
    _, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    return rest.partition(END)[0].strip()


if __name__ == "__main__":
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
