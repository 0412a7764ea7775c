# ---
# name = "find_and_date"
# title = "Passages about a subject, in order of time"
# description = """
# Finds the passages that share words with a subject, has a model say which are truly about it and what date each gives,
# and submits them as a timeline with citations; relevant passages without a date are listed apart. Give letters, notes,
# minutes, contracts or any other text as evidence.
# """
# budget = "subcalls=120,iterations=12,time=20m"
# output_schema = '''
# {
#   "type": "object",
#   "properties": {
#     "summary": {"type": "string"},
#     "subject": {"type": "string"},
#     "documents": {"type": "integer"},
#     "candidates": {"type": "integer", "description": "passages that share words with the subject"},
#     "examined": {"type": "integer", "description": "how many of them a model has read"},
#     "timeline": {"type": "array", "items": {
#       "type": "object",
#       "properties": {
#         "date": {"type": "string", "format": "date"},
#         "citation": {"type": "string", "format": "citation"},
#         "passage": {"type": "string"},
#         "relevance": {"anyOf": [{"type": "number"}, {"type": "null"}]}
#       },
#       "required": ["date", "citation", "passage", "relevance"],
#       "additionalProperties": false
#     }},
#     "undated": {"type": "array", "items": {
#       "type": "object",
#       "properties": {
#         "citation": {"type": "string", "format": "citation"},
#         "passage": {"type": "string"},
#         "relevance": {"anyOf": [{"type": "number"}, {"type": "null"}]}
#       },
#       "required": ["citation", "passage", "relevance"],
#       "additionalProperties": false
#     }}
#   },
#   "required": ["summary", "subject", "documents", "candidates", "examined", "timeline", "undated"],
#   "additionalProperties": false
# }
# '''
#
# [params.subject]
# default = ""
# description = "what the passages should be about; without it, the job's question"
#
# [params.also]
# default = ""
# description = "further words to look for, separated by commas"
#
# [params.limit]
# default = 30
# description = "how many passages the model reads"
#
# [params.files]
# default = "*"
# description = "which files to read"
# ---

# %% Which words to look for
# Words of the subject without the small ones, cut to their stems, and a few common synonyms.
import math
import re
from collections import defaultdict

subject = str(params.get("subject") or question()).strip()
limit = max(0, int(params.get("limit", 30)))
files = str(params.get("files") or "*")

SMALL = set(
    "a about all an and any are as at be been but by can date dates did do does find for from give had has have how in into is it "
    "its list me my of on or our passage passages said say she show so than that the their them then there these they this "
    "those to was we were what when where which who why will with would you your".split()
)
SYNONYMS = {
    "agreement": ["contract", "treaty"],
    "breach": ["violation", "leak", "incident"],
    "buy": ["purchase", "acquire"],
    "contract": ["agreement", "lease"],
    "cost": ["price", "fee", "expense"],
    "delay": ["late", "postpone", "overdue"],
    "error": ["fault", "failure", "defect"],
    "failure": ["outage", "fault", "error"],
    "fire": ["dismiss", "terminate"],
    "hire": ["appoint", "recruit", "employ"],
    "meeting": ["session", "minutes"],
    "outage": ["downtime", "failure", "unavailable"],
    "pay": ["paid", "payment", "invoice"],
    "payment": ["paid", "invoice", "transfer"],
    "terminate": ["cancel", "end"],
}


def stem(word):
    for ending in ("ations", "ation", "ings", "ing", "ies", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


asked = [word for word in re.findall(r"[^\W_]{3,}", subject.lower()) if word not in SMALL]
extra = [word.strip().lower() for word in str(params.get("also") or "").split(",") if word.strip()]
synonyms = [
    synonym for word in asked for synonym in SYNONYMS.get(word, SYNONYMS.get(word.removesuffix("s"), []))
]
stems = list(dict.fromkeys(stem(word) for word in [*asked, *extra, *synonyms]))[:24]
print(f"looking for {', '.join(stems) or 'nothing: the subject has no words to look for'}")

# %% Find the passages that share the most, and the rarest, of these words
# Plain words in their three spellings: searches for literals are the fast kind. The look-behind stands at the end of
# the pattern so that the pattern still begins with the word.

documents = [document for document in evidence.documents(files) if not document.is_binary]
words_at = defaultdict(set)
counts = {}
for word in stems:
    spellings = dict.fromkeys([word, word.capitalize(), word.upper()])
    found = 0
    for spelling in spellings:
        literal = re.escape(spelling)
        for document in documents:
            for hit in document.search(rf"{literal}(?<![A-Za-z]{literal})", limit=20_000):
                words_at[document.name, hit.line].add(word)
                found += 1
    counts[word] = found


def continues(passage, name, line):
    """Whether a line belongs to the passage before it: the same paragraph, and not too long."""
    if passage["name"] != name or line - passage["first"] >= 8 or line - passage["last"] > 2:
        return False
    return all(between.strip() for between in evidence[name].lines(passage["last"], line))


passages = []
for name, line in sorted(words_at):
    last = passages[-1] if passages else None
    if last and continues(last, name, line):
        last["last"] = line
        last["words"] |= words_at[name, line]
    else:
        passages.append({"name": name, "first": line, "last": line, "words": set(words_at[name, line])})


def weight(passage):
    """Rare words weigh more; a word found everywhere tells little."""
    return sum(1 / (1 + math.log(1 + counts[word])) for word in sorted(passage["words"]))


def text_of(passage):
    """The lines with a neighbour on either side, bounded: a model reads short passages best."""
    document = evidence[passage["name"]]
    lines = [line[:1200] for line in document.lines(max(1, passage["first"] - 1), passage["last"] + 2)]
    return "\n".join(lines).strip()[:1500]


passages.sort(key=lambda passage: (-weight(passage), passage["name"], passage["first"]))
candidates, texts = [], set()
for passage in passages:
    if len(candidates) >= limit:
        break
    text = text_of(passage)
    if text and text not in texts:
        texts.add(text)
        citation = evidence[passage["name"]].cite(passage["first"], passage["last"])
        candidates.append({"citation": citation, "passage": text})
print(f"{len(passages):,} passages share words with the subject, {len(candidates)} are read")

# %% Have the model say which are about the subject, and what date they give
# The probability ranks better than the bare yes or no. A date counts only when its year stands in the passage.

RELEVANT = "passage, topic -> related: Literal['yes', 'no']"
IS_IT = "Is the passage related to the topic?"
DATED = "passage, subject -> happened_on: date"
WHEN = "When did what the passage says about the subject happen? Give the date in the passage as YYYY-MM-DD."
A_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d\b|\b\d{1,2}[./]\d{1,2}[./]\d{2}\b")

relevant, examined = [], 0


def spend(wanted):
    """How many of the wanted calls the budget still allows."""
    left = budget().get("subcalls")
    return wanted if left is None else min(wanted, left)


def answer():
    dated = sorted((r for r in relevant if r.get("date")), key=lambda r: (r["date"], r["citation"]))
    undated = [r for r in relevant if not r.get("date")]
    summary = (
        f"{len(relevant)} of {examined} passages read are about {subject!r}"
        if subject
        else "No subject was given"
    )
    summary += (
        f"; {len(passages):,} share words with it." if passages else "; no passage shares words with it."
    )
    if dated:
        summary += f" {len(dated)} are dated, from {dated[0]['date']} to {dated[-1]['date']}."
    return {
        "summary": summary,
        "subject": subject,
        "documents": len(documents),
        "candidates": len(passages),
        "examined": examined,
        "timeline": [{key: r[key] for key in ("date", "citation", "passage", "relevance")} for r in dated],
        "undated": [{key: r[key] for key in ("citation", "passage", "relevance")} for r in undated],
    }


def is_in(day, passage):
    return str(day.year) in passage or re.search(
        rf"\b\d{{1,2}}[./]\d{{1,2}}[./]{day.year % 100:02}\b", passage
    )


try:
    for start in range(0, len(candidates), 8):
        rows = candidates[start : start + 8]
        rows = rows[: spend(len(rows))]
        found = []
        results = predict_batch(
            RELEVANT, [{"passage": row["passage"], "topic": subject} for row in rows], instructions=IS_IT
        )
        for row, result in zip(rows, results):
            examined += result.ok
            if result.ok and result.related == "yes":
                found.append({**row, "relevance": result.probability})
        relevant += found
        with_year = [row for row in found if A_YEAR.search(row["passage"])]
        with_year = with_year[: spend(len(with_year))] if with_year else []
        results = predict_batch(
            DATED, [{"passage": row["passage"], "subject": subject} for row in with_year], instructions=WHEN
        )
        for row, result in zip(with_year, results):
            day = result.happened_on if result.ok else None
            if hasattr(day, "year") and is_in(day, row["passage"]):
                row["date"] = day.isoformat()
        relevant.sort(key=lambda row: (-(row["relevance"] or 0), row["citation"]))
        progress(start + len(rows), len(candidates), "passages read")
        DRAFT(**answer())
except BudgetExceeded as refusal:
    print(f"stopped early: {refusal}")
print(f"{len(relevant)} relevant, {sum('date' in row for row in relevant)} dated")

# %% Submit
SUBMIT(**answer())
