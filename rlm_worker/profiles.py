"""What differs between families of models when they write cells: one table, chosen by the model's name."""

import re
from dataclasses import dataclass, replace

from rlm_worker.models.port import AS_IT_IS, Sampling


class UnknownProfile(ValueError):
    """No profile goes by this name; the message says which there are."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How a family is spoken to."""

    name: str
    #: In the model's name, in any spelling of case.
    known_by: re.Pattern[str]
    #: What its members do wrong unless told.
    cautions: str = ""
    #: The most characters of a cell's output that a prompt shows.
    observation_chars: int = 10_000
    #: How its turns are drawn; what a family refuses or does well by itself is left out.
    sampling: Sampling = AS_IT_IS


_MANY_CALLS = (
    "A predict call costs money and time. Batch hundreds of lines into one call or filter with code first; "
    "a handful of calls is usual, more than fifty in a cell is a mistake unless the question asks about every item."
)
_FEW_CALLS = "Use predict where meaning must be judged: do not imitate it with keyword lists when a dozen calls would settle it."

DEFAULT = Profile(name="default", known_by=re.compile(""), cautions=_MANY_CALLS)

#: The first whose pattern is found in the name is taken.
PROFILES: tuple[Profile, ...] = (
    Profile(
        name="small-local",
        known_by=re.compile(
            r"^embedded|smollm|phi-?[1-4]|gemma-?[23]?-?[1-9]b|(?<![\d.])[0-9](\.\d+)?b(?![a-z])|-mini-local|tiny",
            re.IGNORECASE,
        ),
        cautions=(
            "Write short cells of at most ten lines and print at most twenty lines. Do one thing per turn. "
            "Never invent what a cell printed: wait for it. When the answer is known, call SUBMIT at once. "
            + _MANY_CALLS
        ),
        observation_chars=3_000,
        sampling=Sampling(temperature=0.2),
    ),
    Profile(
        name="qwen-deepseek",
        known_by=re.compile(r"qwen|qwq|deepseek|glm|kimi|minimax", re.IGNORECASE),
        cautions=(
            "Be very careful with predict: every call costs. Never call it once per line or once per document; "
            "collect what is to be judged and send it in batches of long passages. " + _MANY_CALLS + " "
            "Do not repeat the plan in every turn, and write nothing after the code block."
        ),
        observation_chars=8_000,
        # What their makers advise: at 0 they tend to repeat themselves without end.
        sampling=Sampling(temperature=0.6, top_p=0.95),
    ),
    Profile(
        name="gpt",
        known_by=re.compile(r"gpt|(?<![a-z])o[1345](?![a-z\d])|codex", re.IGNORECASE),
        cautions=_FEW_CALLS + " Do not ask for permission and do not end a turn without a code block.",
    ),
    Profile(
        name="claude",
        known_by=re.compile(r"claude|anthropic|opus|sonnet|haiku", re.IGNORECASE),
        cautions=(
            _FEW_CALLS
            + " Write exactly one code block per turn, not the whole program with imagined output. "
            "Stop looking once the evidence is enough."
        ),
        observation_chars=12_000,
    ),
    Profile(
        name="gemini",
        known_by=re.compile(r"gemini", re.IGNORECASE),
        cautions=_MANY_CALLS + " Only the Python block runs: there are no other tools.",
        observation_chars=12_000,
    ),
)


def profile_for(model: str, *, chosen: str | None = None) -> Profile:
    """The profile of this model, or the one chosen by name."""
    if chosen is not None:
        return _named(chosen)
    # Of a model by URL, the name is what counts: a host may be called anything.
    name = model.rpartition("#")[2] if model.startswith(("http://", "https://")) else model
    return next((profile for profile in PROFILES if profile.known_by.search(name)), DEFAULT)


def sampling_of(profile: Profile, *, temperature: float | None) -> Sampling:
    """How turns are drawn: as the profile wants, but for a temperature that a person chose."""
    return profile.sampling if temperature is None else replace(profile.sampling, temperature=temperature)


def _named(chosen: str) -> Profile:
    for profile in (DEFAULT, *PROFILES):
        if profile.name == chosen:
            return profile
    known = ", ".join(profile.name for profile in (DEFAULT, *PROFILES))
    raise UnknownProfile(f"there is no profile {chosen!r}: choose one of {known}")
