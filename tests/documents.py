"""Every document rebal writes against its JSON Schema, in the text that a user gets."""

import json
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
import yaml

_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _has_zone(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@cache
def validator(name: str) -> Any:
    """Return the validator of a document, by the schema that the wheel ships."""
    text = (files("rebal.cli") / "data" / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=_FORMATS)


def checked(text: str, form: str = "json") -> Any:
    """Return the document in `text`; fail where its schema does not fit."""
    body = json.loads(text) if form == "json" else yaml.load(text, _Texts)
    faults = [
        f"{error.json_path}: {error.message[:300]}"
        for error in validator(body["schema"].removeprefix("rebal.").partition("/")[0]).iter_errors(
            body
        )
    ]
    assert not faults, faults
    return body


class _Texts(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader that leaves times as text, as JSON has them."""


_Texts.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
