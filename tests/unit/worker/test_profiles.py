"""Families of models: known by name, told what their members do wrong."""

import pytest

from rlm_worker.profiles import DEFAULT, PROFILES, UnknownProfile, profile_for
from rlm_worker.prompts import SYSTEM, system_prompt


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openai:gpt-5.5", "gpt"),
        ("openai:o3", "gpt"),
        ("groq:openai/gpt-oss-120b", "gpt"),
        ("anthropic:claude-sonnet-5-5", "claude"),
        ("bedrock:anthropic.claude-opus-4", "claude"),
        ("google:gemini-3.1-pro-preview", "gemini"),
        ("http://127.0.0.1:8000/v1#Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen-deepseek"),
        ("deepseek:deepseek-chat", "qwen-deepseek"),
        ("embedded", "small-local"),
        ("embedded:qwen2.5-coder-1.5b", "small-local"),
        ("http://127.0.0.1:8000/v1#qwen2.5-coder-7b", "small-local"),
        ("http://gpt.example/v1#scripted", "default"),
        ("mistral:mistral-large-latest", "default"),
    ],
)
def test_a_model_is_known_by_its_name(model, family):
    assert profile_for(model).name == family


def test_a_setting_chooses_the_profile_whatever_the_name():
    assert profile_for("openai:gpt-5.5", chosen="claude").name == "claude"
    with pytest.raises(UnknownProfile, match="default, small-local"):
        profile_for("x", chosen="llama")


def test_every_profile_keeps_the_common_part_as_the_prefix_and_warns_in_its_own_words():
    profiles = (DEFAULT, *PROFILES)

    prompts = [system_prompt(profile) for profile in profiles]

    assert all(prompt.startswith(SYSTEM) for prompt in prompts)
    assert len(set(prompts)) == len(profiles)
    assert len({profile.name for profile in profiles}) == len(profiles)
