"""Which modules strict code may import, and which of their public names. A table; `facades` hands them out."""

#: None: all of `__all__`. A text: these names. Names after a minus are left out of `__all__`.
OFFERED: dict[str, str | None] = {
    "__future__": "annotations",
    "abc": "ABC abstractmethod abstractproperty abstractclassmethod abstractstaticmethod",
    "array": "array typecodes",
    "ast": "literal_eval",
    "asyncio": (
        "gather sleep run wait wait_for as_completed create_task ensure_future to_thread shield timeout TaskGroup "
        "Semaphore BoundedSemaphore Lock Event Condition Queue PriorityQueue LifoQueue QueueEmpty QueueFull "
        "TimeoutError CancelledError InvalidStateError iscoroutinefunction iscoroutine current_task "
        "FIRST_COMPLETED FIRST_EXCEPTION ALL_COMPLETED"
    ),
    "base64": None,
    "binascii": "hexlify unhexlify crc32 a2b_hex b2a_hex a2b_base64 b2a_base64 Error",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "bz2": "compress decompress BZ2Compressor BZ2Decompressor",
    "calendar": (
        "monthrange month_name month_abbr day_name day_abbr isleap leapdays weekday timegm monthcalendar calendar month "
        "Calendar TextCalendar MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY"
    ),
    "cmath": "acos asin atan cos exp log phase pi e polar rect sin sqrt tan inf nan isclose isfinite isinf isnan",
    "collections": "- UserString",
    "collections.abc": None,
    "concurrent.futures": (
        "ThreadPoolExecutor as_completed wait Future TimeoutError CancelledError FIRST_COMPLETED FIRST_EXCEPTION "
        "ALL_COMPLETED"
    ),
    "contextlib": "- chdir",
    "contextvars": "ContextVar Token copy_context",
    "copy": "copy deepcopy Error",
    "csv": "- unix_dialect",
    "dataclasses": "field fields asdict astuple replace is_dataclass MISSING KW_ONLY InitVar FrozenInstanceError Field",
    "datetime": "date datetime time timedelta timezone tzinfo UTC MINYEAR MAXYEAR",
    "decimal": (
        "Decimal Context getcontext setcontext localcontext DecimalException InvalidOperation DivisionByZero Inexact "
        "Overflow Rounded ROUND_UP ROUND_DOWN ROUND_CEILING ROUND_FLOOR ROUND_HALF_UP ROUND_HALF_DOWN ROUND_HALF_EVEN"
    ),
    "difflib": None,
    "enum": "Enum IntEnum StrEnum Flag IntFlag auto unique verify member nonmember UNIQUE CONTINUOUS",
    "errno": "ENOENT EACCES EPERM EEXIST EINVAL EAGAIN EIO errorcode",
    "fnmatch": None,
    "fractions": "Fraction",
    "functools": "- update_wrapper wraps WRAPPER_ASSIGNMENTS WRAPPER_UPDATES singledispatchmethod",
    "glob": "escape",
    "graphlib": "TopologicalSorter CycleError",
    "gzip": "compress decompress BadGzipFile",
    "hashlib": "md5 sha1 sha224 sha256 sha384 sha512 sha3_256 sha3_512 blake2b blake2s new algorithms_available",
    "heapq": None,
    "hmac": "new digest compare_digest",
    "html": None,
    "html.entities": "html5 name2codepoint codepoint2name",
    "html.parser": "HTMLParser",
    "io": "StringIO BytesIO TextIOWrapper SEEK_SET SEEK_CUR SEEK_END DEFAULT_BUFFER_SIZE UnsupportedOperation",
    "ipaddress": (
        "ip_address ip_network ip_interface IPv4Address IPv4Network IPv6Address IPv6Network summarize_address_range "
        "collapse_addresses AddressValueError NetmaskValueError"
    ),
    "itertools": (
        "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse groupby "
        "islice pairwise permutations product repeat starmap takewhile tee zip_longest batched"
    ),
    "json": "dump dumps load loads JSONDecoder JSONEncoder JSONDecodeError",
    "keyword": None,
    "logging": (
        "getLogger debug info warning error critical exception log DEBUG INFO WARNING ERROR CRITICAL NOTSET "
        "StreamHandler NullHandler getLevelName"
    ),
    "lzma": "compress decompress LZMAError",
    "math": "",
    "numbers": None,
    "operator": "",
    "os": "",
    "os.path": "",
    "pathlib": "PurePath PurePosixPath PureWindowsPath",
    "platform": "python_version python_implementation",
    "pprint": None,
    "queue": None,
    "random": None,
    "re": (
        "compile search match fullmatch sub subn split findall finditer escape purge error Pattern Match RegexFlag "
        "A ASCII I IGNORECASE L LOCALE M MULTILINE S DOTALL X VERBOSE U UNICODE NOFLAG"
    ),
    "reprlib": "repr Repr recursive_repr",
    "secrets": None,
    "shlex": "split join quote",
    "sqlite3": (
        "Row Error DatabaseError IntegrityError OperationalError ProgrammingError InterfaceError DataError NotSupportedError "
        "Warning PARSE_DECLTYPES PARSE_COLNAMES sqlite_version version Binary"
    ),
    "statistics": None,
    "string": "- Formatter",
    "struct": None,
    "sys": "maxsize version version_info float_info int_info byteorder getsizeof exit maxunicode getrecursionlimit platform",
    "textwrap": None,
    "threading": (
        "Thread Lock RLock Event Condition Semaphore BoundedSemaphore Barrier Timer local current_thread main_thread "
        "active_count get_ident BrokenBarrierError"
    ),
    "time": (
        "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time sleep "
        "strftime strptime gmtime localtime mktime asctime ctime struct_time timezone tzname"
    ),
    "timeit": "default_timer",
    "tomllib": "load loads TOMLDecodeError",
    "traceback": "format_exc print_exc format_exception print_exception format_exception_only",
    "types": "SimpleNamespace MappingProxyType GeneratorType NoneType EllipsisType UnionType GenericAlias",
    "typing": "- get_type_hints ForwardRef no_type_check no_type_check_decorator",
    "unicodedata": "name lookup normalize category bidirectional combining east_asian_width numeric decimal digit is_normalized",
    "urllib.parse": None,
    "uuid": "UUID uuid3 uuid4 uuid5 NAMESPACE_DNS NAMESPACE_URL NAMESPACE_OID",
    "warnings": "warn simplefilter filterwarnings resetwarnings catch_warnings",
    "weakref": "ref proxy WeakKeyDictionary WeakValueDictionary WeakSet",
    "xml.etree.ElementTree": (
        "Element SubElement fromstring fromstringlist tostring tostringlist XML XMLID Comment ProcessingInstruction QName "
        "ParseError iselement indent dump canonicalize XMLPullParser TreeBuilder"
    ),
    "zlib": "compress decompress compressobj decompressobj crc32 adler32 error MAX_WBITS",
    "zoneinfo": "ZoneInfo ZoneInfoNotFoundError available_timezones",
}  # fmt: skip

#: What strict code is told about modules it may not have.
INSTEAD = {
    "subprocess": "no program can be started in this sandbox: do it in Python",
    "multiprocessing": "use concurrent.futures.ThreadPoolExecutor",
    "socket": "direct network is off in this sandbox: use `evidence`, a declared tool, or fetch(url)",
    "urllib.request": "direct network is off in this sandbox: use `evidence`, a declared tool, or fetch(url)",
    "http": "direct network is off in this sandbox: use `evidence`, a declared tool, or fetch(url)",
    "pickle": "use json",
    "shelve": "use json or sqlite3",
    "importlib": "import what you need by its name",
    "builtins": "the built-in names are there without it",
    "inspect": "print what you want to see",
    "ctypes": "use struct",
    "gc": "memory is returned by itself",
    "tempfile": "write below `workspace`",
    "shutil": "use pathlib below `workspace`",
    "zipfile": "use gzip or zlib; for archives the job needs the `open` language policy",
    "tarfile": "use gzip or zlib; for archives the job needs the `open` language policy",
    "codecs": "use str.encode and bytes.decode, open(…, encoding=…)",
    "configparser": "read it line by line, or tomllib",
    "argparse": "there is no command line: assign your parameters",
    "signal": "give a deadline to what you call",
    "code": "write it as a function",
}
