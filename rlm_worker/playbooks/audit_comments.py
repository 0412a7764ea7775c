# ---
# name = "audit_comments"
# title = "Comments that admit a bug, a workaround or a missing piece"
# description = """
# Finds the comments of a source tree that admit something is wrong (XXX, FIXME, TODO, HACK, "workaround",
# "not implemented", …), has a model say of a bounded number of them what they admit, and submits a table by kind
# and module in which every finding has its file and line. Give the source tree as evidence.
# """
# budget = "subcalls=60,iterations=12,time=20m"
# output_schema = '''
# {
#   "type": "object",
#   "properties": {
#     "summary": {"type": "string"},
#     "scanned_files": {"type": "integer"},
#     "admitted": {"type": "integer", "description": "comments found, all of them"},
#     "classified": {"type": "integer", "description": "how many of them a model has read"},
#     "unsure": {"type": "integer", "description": "findings with a probability below 0.6: look at these yourself"},
#     "by_kind": {"type": "object", "additionalProperties": {"type": "integer"}},
#     "by_module": {"type": "array", "items": {
#       "type": "object",
#       "properties": {"module": {"type": "string"}, "admissions": {"type": "integer"}},
#       "required": ["module", "admissions"],
#       "additionalProperties": false
#     }},
#     "findings": {"type": "array", "items": {
#       "type": "object",
#       "properties": {
#         "kind": {"type": "string"},
#         "module": {"type": "string"},
#         "citation": {"type": "string", "format": "citation"},
#         "comment": {"type": "string"},
#         "probability": {"anyOf": [{"type": "number"}, {"type": "null"}]}
#       },
#       "required": ["kind", "module", "citation", "comment", "probability"],
#       "additionalProperties": false
#     }}
#   },
#   "required": ["summary", "scanned_files", "admitted", "classified", "unsure", "by_kind", "by_module", "findings"],
#   "additionalProperties": false
# }
# '''
#
# [params.limit]
# default = 24
# description = "how many comments the model reads"
#
# [params.files]
# default = "*.py"
# description = "which files to scan; the comment sign follows from their ending"
#
# [params.skip]
# default = "test, tests, idle_test, site-packages, dist-packages, __pycache__"
# description = "folders to leave out, by name"
# ---

# %% Find the comments that admit something
# A comment sign first, then a telling word on the same line: a pattern that begins with a literal is the fast kind.
import re
from collections import Counter, defaultdict

limit = max(0, int(params.get("limit", 24)))
files = str(params.get("files") or "*.py")
default_skip = "test, tests, idle_test, site-packages, dist-packages, __pycache__"
skipped = {name.strip() for name in str(params.get("skip", default_skip)).split(",") if name.strip()}

SLASHES = (
    ".c",
    ".h",
    ".cc",
    ".cpp",
    ".hpp",
    ".js",
    ".jsx",
    ".ts",
    ".tsx",
    ".go",
    ".rs",
    ".java",
    ".swift",
    ".kt",
)
ADMISSION = (
    r"(?:XXX+|FIXME|TODO|HACK|KLUDGE|BUG|[Ww]ork-?\s?around|[Kk]ludge|[Hh]acky?"
    r"|[Nn]ot (?:yet|currently) (?:implemented|supported|handled)|[Uu]nimplemented|does(?:n't| not) work|bug in)\b"
)


def is_chosen(name):
    return not skipped.intersection(name.split("/")[:-1])


STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')


def comment_in(line, sign):
    """What follows the comment sign. A sign inside a string is none, so strings are blanked out first."""
    code, found, _ = STRING.sub(lambda string: "_" * len(string[0]), line).partition(sign)
    return line[len(code) + len(sign) :] if found and not re.search("[\"']", code) else ""


documents = [evidence[name] for name in evidence.names(files) if is_chosen(name)]
if not documents:
    documents = [evidence[name] for name in evidence if is_chosen(name)]
scanned = [document for document in documents if not document.is_binary]

hits = []
for document in scanned:
    sign = "//" if document.name.endswith(SLASHES) else "#"
    found = document.search(rf"{sign}[^\n]*?\b{ADMISSION}")
    hits += [(hit, sign) for hit in found if re.search(ADMISSION, comment_in(hit.text, sign))]
print(f"{len(scanned):,} files scanned, {len(hits):,} lines with a telling comment")

# %% Read each comment whole, once
# A comment may run over several lines: the model should see all of it, and two hits in one comment are one admission.


def module_of(name):
    """The first folder below the evidence's own name, or the file itself: stdlib/asyncio/tasks.py is in asyncio."""
    parts = name.split("/")
    inner = parts[1] if len(parts) > 1 else parts[0]
    return inner.rpartition(".")[0] or inner


def whole_comment(hit, sign):
    """The lines of the comment around a hit: those above and below that hold nothing but comment."""
    document, number = hit.document, hit.line
    around = {line.number: line.strip() for line in document.lines(max(1, number - 3), number + 5)}
    first = last = number
    while (
        around.get(number, "").startswith(sign) and first - 1 in around and around[first - 1].startswith(sign)
    ):
        first -= 1
    while last + 1 in around and around[last + 1].startswith(sign):
        last += 1
    texts = [comment_in(around[n], sign) for n in range(first, last + 1)]
    return first, " ".join(text.lstrip(sign + "!*: ").strip() for text in texts).strip()[:400]


admissions, seen = [], set()
for hit, sign in hits:
    first, comment = whole_comment(hit, sign)
    key = comment.lower()
    if (hit.document.name, first) in seen or key in seen or not comment:
        continue
    seen.update([(hit.document.name, first), key])
    module = module_of(hit.document.name)
    admissions.append({"module": module, "citation": hit.citation, "comment": comment})

per_module = Counter(admission["module"] for admission in admissions)
print(f"{len(admissions):,} different comments in {len(per_module):,} modules")
for module, count in sorted(per_module.items(), key=lambda item: (-item[1], item[0]))[:8]:
    print(f"{count:5} {module}")

# %% Choose a bounded number of them, from as many modules as possible
# The plainest words first, then one comment from each module in turn, the fullest modules first.

PLAIN = re.compile(r"\b(?:FIXME|XXX+|HACK|BUG|KLUDGE)\b")
queues = defaultdict(list)
for admission in admissions:
    queues[admission["module"]].append(admission)
for queue in queues.values():
    queue.sort(key=lambda a: (not PLAIN.search(a["comment"]), len(a["comment"]) < 40, a["citation"]))

chosen = []
order = sorted(queues, key=lambda module: (-len(queues[module]), module))
while len(chosen) < limit and any(queues.values()):
    for module in order:
        if queues[module] and len(chosen) < limit:
            chosen.append(queues[module].pop(0))
print(f"{len(chosen)} chosen from {len({a['module'] for a in chosen})} modules")

# %% Have the model say what each admits, eight at a time
# After each eight the answer so far is kept: a limit that hits then still leaves something.

SIGNATURE = "comment -> kind: Literal['bug', 'workaround', 'missing feature', 'cleanup', 'question']"
# Examples teach a small model more than definitions do, and a short prompt is a fast one.
INSTRUCTIONS = """Classify the comment of a programmer.
Examples:
"XXX fails if the list is empty" is bug
"hack to please old compilers" is workaround
"TODO handle time zones" is missing feature
"XXX should check the length" is missing feature
"XXX remove this function, it is deprecated" is cleanup
"TODO move this to a better place" is cleanup
"XXX do we need this?" is question"""

findings, failed = [], 0


def answer():
    kinds = Counter(finding["kind"] for finding in findings)
    unsure = [f for f in findings if f["probability"] is not None and f["probability"] < 0.6]
    top = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    fullest = sorted(per_module.items(), key=lambda item: (-item[1], item[0]))
    where = ", ".join(f"{module} ({count})" for module, count in fullest[:3])
    summary = (
        f"{len(admissions):,} comments in {len(scanned):,} files have words that admit something is wrong."
    )
    if admissions:
        summary += f" Most are in {where}."
    if findings:
        summary += f" Of {len(findings)} read by a model: {top}; it was unsure of {len(unsure)}."
    if failed:
        summary += f" {failed} could not be classified."
    return {
        "summary": summary,
        "scanned_files": len(scanned),
        "admitted": len(admissions),
        "classified": len(findings),
        "unsure": len(unsure),
        "by_kind": dict(sorted(kinds.items())),
        "by_module": [{"module": module, "admissions": count} for module, count in fullest[:40]],
        "findings": sorted(findings, key=lambda f: (f["kind"], -(f["probability"] or 0), f["citation"])),
    }


left = budget().get("subcalls")
if left is not None:
    chosen = chosen[:left]
for start in range(0, len(chosen), 8):
    rows = chosen[start : start + 8]
    try:
        results = predict_batch(SIGNATURE, [row["comment"] for row in rows], instructions=INSTRUCTIONS)
    except BudgetExceeded as refusal:
        print(f"stopped early: {refusal}")
        break
    for row, result in zip(rows, results):
        if result.ok:
            findings.append({"kind": result.kind, **row, "probability": result.probability})
        else:
            failed += 1
    progress(start + len(rows), len(chosen), "comments classified")
    DRAFT(**answer())
print(Counter(finding["kind"] for finding in findings))

# %% Submit
SUBMIT(**answer())
