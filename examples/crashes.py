# %% find the lines that matter, and group them by shape
import re
from collections import defaultdict

groups = defaultdict(list)
for hit in evidence.search(r"(?:ERROR|FATAL) "):
    shape = re.sub(r"\d+", "#", hit.text.split(" ", 2)[2])
    groups[shape].append(hit)
top = sorted(groups.values(), key=len, reverse=True)
print(len(groups), "shapes,", sum(map(len, top)), "lines")

# %% keep what is known so far: used, labelled partial, if a limit ends the job
worst = top[0]
DRAFT(answer=worst[0].text, count=len(worst), citations=[worst[0].citation])

# %% ask one typed question
asked = predict(
    "line -> cause: Literal['the database','the network','memory','a user','a certificate']",
    line=worst[0].text,
    instructions="What caused this log line?",
)
print(asked.cause, asked.probability)

# %% answer
SUBMIT(
    answer=f"{asked.cause}: {worst[0].text}",
    count=len(worst),
    citations=[worst[0].citation, worst[-1].citation],
)
