"""What a call sends beside its text, made ready before anything is spent: refused, cut out, kept by content."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlm_worker.calls import Call
from rlm_worker.cutting import NotCut, cut_pages
from rlm_worker.errors import NotAsked
from rlm_worker.media import PageOf, keep_media, media_digest, page_text, refuse_unseeing
from rlm_worker.models.port import Media
from rlm_worker.workbench import Workbench

Cut = dict[PageOf, Media | NotAsked]


async def admit(bench: Workbench, calls: Sequence[Call]) -> list[Call | NotAsked]:
    """Each call with the bytes that it sends, or why it is not asked. Raises NotAsked when its model takes none of it."""
    attached = [call for call in calls if call.attachments]
    if not attached:
        return list(calls)
    for call in attached:
        refuse_unseeing(call.model, call.attachments, bench.settings.models)
    pages = {each for call in attached for each in call.attachments if isinstance(each, PageOf)}
    cut = await _cut(bench, pages) if pages else {}
    admitted = [_ready(call, cut) if call.attachments else call for call in calls]
    for ready in admitted:
        if isinstance(ready, Call):
            await asyncio.to_thread(keep_media, ready.media, bench.artifacts)
            await asyncio.to_thread(bench.hand_in, [media_digest(each) for each in ready.media])
    return admitted


def _ready(call: Call, cut: Cut) -> Call | NotAsked:
    media = [cut[each] if isinstance(each, PageOf) else each for each in call.attachments]
    refused = next((each for each in media if isinstance(each, NotAsked)), None)
    if refused is not None:
        return refused
    return replace(call, media=tuple(each for each in media if isinstance(each, Media)))


async def _cut(bench: Workbench, pages: set[PageOf]) -> Cut:
    """All pages of one document together, since each sandbox reads it anew."""
    cut: Cut = {}
    by_file: defaultdict[Path, list[PageOf]] = defaultdict(list)
    for page in pages:
        file = await asyncio.to_thread(bench.citations.pdf_with, page.document, page=page.page)
        if file is None:
            cut[page] = NotAsked(f"there is no page {page.page} of a PDF {page.document!r} in the evidence")
        else:
            by_file[file].append(page)
    for file, wanted in by_file.items():
        async with bench.cutting:
            found = await cut_pages(bench, file, [page.page for page in wanted])
        cut |= {page: _medium(page, found[page.page]) for page in wanted}
    return cut


def _medium(page: PageOf, found: bytes | NotCut) -> Media | NotAsked:
    if isinstance(found, NotCut):
        return NotAsked(
            f"page {page.page} of {page.document} cannot be cut out ({found}): use its text, {page_text(page)}"
        )
    return Media(media_type=page.media_type, data=found)
