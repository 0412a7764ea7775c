# ---
# name = "log_triage"
# title = "What went wrong in these logs, and when"
# description = """
# Keeps the lines of a log that speak of trouble, masks what varies in them (numbers, addresses, paths, times), groups
# them by shape, has a model name the subsystem of a bounded number of shapes, and submits the groups with
# their first and last occurrence and a timeline. Give log files as evidence.
# """
# budget = "subcalls=60,iterations=12,time=20m"
# output_schema = '''
# {
#   "type": "object",
#   "properties": {
#     "summary": {"type": "string"},
#     "files": {"type": "integer"},
#     "lines": {"type": "integer"},
#     "trouble_lines": {"type": "integer", "description": "lines that speak of trouble"},
#     "shapes": {"type": "integer", "description": "different messages among them"},
#     "classified": {"type": "integer", "description": "how many shapes a model has read"},
#     "by_subsystem": {"type": "object", "additionalProperties": {"type": "integer"}},
#     "groups": {"type": "array", "items": {
#       "type": "object",
#       "properties": {
#         "shape": {"type": "string"},
#         "count": {"type": "integer"},
#         "level": {"type": "string"},
#         "subsystem": {"type": "string"},
#         "severity": {"type": "string"},
#         "probability": {"anyOf": [{"type": "number"}, {"type": "null"}]},
#         "sample": {"type": "string"},
#         "first": {"type": "string", "format": "citation"},
#         "last": {"type": "string", "format": "citation"},
#         "first_seen": {"anyOf": [{"type": "string"}, {"type": "null"}]},
#         "last_seen": {"anyOf": [{"type": "string"}, {"type": "null"}]}
#       },
#       "required": ["shape", "count", "level", "subsystem", "severity", "probability", "sample", "first", "last",
#                    "first_seen", "last_seen"],
#       "additionalProperties": false
#     }},
#     "timeline": {"type": "array", "items": {
#       "type": "object",
#       "properties": {"start": {"type": "string"}, "trouble_lines": {"type": "integer"}},
#       "required": ["start", "trouble_lines"],
#       "additionalProperties": false
#     }}
#   },
#   "required": ["summary", "files", "lines", "trouble_lines", "shapes", "classified", "by_subsystem", "groups", "timeline"],
#   "additionalProperties": false
# }
# '''
#
# [params.limit]
# default = 24
# description = "how many shapes the model reads"
#
# [params.files]
# default = "*"
# description = "which files are logs"
#
# [params.read]
# default = 300000
# description = "how many lines of trouble are grouped; the rest is counted only"
# ---

# %% Keep the lines that speak of trouble
# Each hit runs to the end of its line, so that a line counts once, however many telling words it has.
import re
from collections import Counter
from datetime import datetime, timedelta

limit = max(0, int(params.get("limit", 24)))
read = max(1, int(params.get("read", 300_000)))
files = str(params.get("files") or "*")

TROUBLE = (
    r"(?:FATAL|Fatal|fatal|CRITICAL|Critical|critical|PANIC|Panic|panic|EMERG|ALERT|ERROR|Error|error|ERR\b|SEVERE"
    r"|WARN|Warn|warn|Exception|Traceback|FAIL|Fail|fail|refused|denied|timed out|timeout|Timeout|unreachable"
    r"|corrupt|abort|Abort|segfault|Out of memory|out of memory|No space left)[^\n]*"
)
LEVELS = [
    ("fatal", re.compile(r"fatal|critical|panic|emerg|alert|segfault", re.IGNORECASE)),
    (
        "error",
        re.compile(
            r"error|\berr\b|severe|exception|traceback|fail|corrupt|abort|out of memory|no space left",
            re.IGNORECASE,
        ),
    ),
    ("warning", re.compile(r"warn|refused|denied|time[d-]? ?out|unreachable", re.IGNORECASE)),
]


def level_of(line):
    """The level that the line states in capitals near its beginning, else the one its words suggest."""
    stated = re.search(
        r"\b(FATAL|CRITICAL|PANIC|EMERG|ALERT|ERROR|ERR|SEVERE|WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE)\b",
        line[:120],
    )
    if stated and stated[1] in ("INFO", "DEBUG", "NOTICE", "TRACE"):
        return "info"
    return next((name for name, words in LEVELS if words.search(stated[1] if stated else line)), "info")


documents = [document for document in evidence.documents(files) if not document.is_binary]
lines = sum(document.line_count for document in documents)
print(f"{len(documents):,} files, {lines:,} lines")

# %% Mask what varies and group by shape
# Two lines that differ only in numbers, addresses, paths or times are the same message.

MASKS = [
    (re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\d{1,2}/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?: [+-]\d{4})?"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"), "<time>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<ip>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "<hex>"),
    (re.compile(r"(?<![\w<])/(?:[\w.@+-]+/)*[\w.@+-]+"), "<path>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
]
TIMES = [
    (re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)"), "%Y %m %d %H %M %S"),
    (re.compile(r"(\d{1,2})/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)"), "%d %b %Y %H %M %S"),
    (re.compile(r"\b([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)"), "%b %d %H %M %S"),
]


def shape_of(line):
    for pattern, placeholder in MASKS:
        line = pattern.sub(placeholder, line)
    return " ".join(line.split())[:300]


def time_of(line):
    """The first time in the line. Times without a year are put into 2000: they sort, and are shown without it."""
    for pattern, form in TIMES:
        found = pattern.search(line[:200])
        if found:
            text, form = (
                (" ".join(found.groups()), form)
                if "%Y" in form
                else ("2000 " + " ".join(found.groups()), "%Y " + form)
            )
            try:
                return datetime.strptime(text, form)
            except ValueError:
                continue
    return None


groups, times, trouble = {}, Counter(), 0
for document in documents:
    for hit in document.search(TROUBLE):
        if trouble >= read:
            trouble += 1
            continue
        text = hit.text
        level = level_of(text)
        if level == "info":
            continue
        trouble += 1
        when = time_of(text)
        group = groups.setdefault(
            shape_of(text), {"count": 0, "level": level, "sample": text[:400], "hits": [hit, hit], "seen": []}
        )
        group["count"] += 1
        group["hits"][1] = hit
        if when:
            times[when.replace(second=0)] += 1
            group["seen"] = [min([when, *group["seen"][:1]]), max([when, *group["seen"][1:]])]
print(f"{trouble:,} lines of trouble in {len(groups):,} shapes")

# %% Choose the shapes to read: the gravest and most frequent, and some of the rarest
RANK = {"fatal": 0, "error": 1, "warning": 2}
by_weight = sorted(groups, key=lambda shape: (RANK[groups[shape]["level"]], -groups[shape]["count"], shape))
frequent = by_weight[: limit - limit // 3]
rest = [shape for shape in by_weight if shape not in frequent]
rare = sorted(rest, key=lambda shape: (RANK[groups[shape]["level"]], groups[shape]["count"], shape))[
    : limit - len(frequent)
]
chosen = frequent + rare
for shape in chosen[:10]:
    print(f"{groups[shape]['count']:7,} {groups[shape]['level']:8} {shape[:110]}")

# %% Have the model name the subsystem, eight shapes at a time
# One closed label a call: a small model is good at that, and says how sure it is. The severity follows from the level.
SIGNATURE = (
    "line -> subsystem: Literal['network', 'disk', 'memory', 'database', 'authentication', 'application']"
)
INSTRUCTIONS = "Classify the log line by the subsystem it is about: network, disk, memory, database, authentication, or application."
SEVERITY = {"fatal": "high", "error": "medium", "warning": "low"}


def seen_text(moment):
    if moment is None:
        return None
    return moment.strftime("%m-%d %H:%M:%S") if moment.year == 2000 else moment.isoformat(sep=" ")


def timeline():
    """Lines of trouble per minute, hour or day: the finest that gives at most 48 rows."""
    if not times:
        return []
    first, last = min(times), max(times)
    steps = [
        timedelta(minutes=1),
        timedelta(minutes=10),
        timedelta(hours=1),
        timedelta(days=1),
        timedelta(days=30),
    ]
    step = next((s for s in steps if (last - first) / s < 48), timedelta(days=365))
    origin = first.replace(hour=0, minute=0)
    buckets = Counter()
    for moment, count in times.items():
        buckets[origin + (moment - origin) // step * step] += count
    return [{"start": seen_text(start), "trouble_lines": buckets[start]} for start in sorted(buckets)]


classified = []


def answer():
    subsystems = Counter()
    for group in classified:
        subsystems[group["subsystem"]] += group["count"]
    covered = sum(subsystems.values())
    summary = f"{trouble:,} of {lines:,} lines speak of trouble, in {len(groups):,} different messages."
    if classified:
        worst = ", ".join(f"{name} ({count:,} lines)" for name, count in subsystems.most_common(3))
        high = sum(group["severity"] == "high" for group in classified)
        summary += f" {len(classified)} messages were read by a model, they make up {covered:,} lines: {worst}; {high} are severe."
    if trouble > read:
        summary += f" Only the first {read:,} were grouped."
    return {
        "summary": summary,
        "files": len(documents),
        "lines": lines,
        "trouble_lines": trouble,
        "shapes": len(groups),
        "classified": len(classified),
        "by_subsystem": dict(sorted(subsystems.items())),
        "groups": classified,
        "timeline": timeline(),
    }


def described(shape, result):
    group = groups[shape]
    first, last = group["hits"]
    seen = group["seen"] or [None, None]
    return {
        "shape": shape,
        "count": group["count"],
        "level": group["level"],
        "subsystem": result.subsystem,
        "severity": SEVERITY[group["level"]],
        "probability": result.probability,
        "sample": group["sample"],
        "first": first.citation,
        "last": last.citation,
        "first_seen": seen_text(seen[0]),
        "last_seen": seen_text(seen[1]),
    }


left = budget().get("subcalls")
if left is not None:
    chosen = chosen[:left]
for start in range(0, len(chosen), 8):
    rows = chosen[start : start + 8]
    try:
        results = predict_batch(
            SIGNATURE, [groups[shape]["sample"] for shape in rows], instructions=INSTRUCTIONS
        )
    except BudgetExceeded as refusal:
        print(f"stopped early: {refusal}")
        break
    classified += [described(shape, result) for shape, result in zip(rows, results) if result.ok]
    progress(start + len(rows), len(chosen), "messages classified")
    DRAFT(**answer())

# %% Submit
SUBMIT(**answer())
