"""The OpenAPI document: valid, and of the served routes with their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.routes import rerank, tei
from llama_py_server.routes.openapi import ServedRoute, document
from llama_py_server.routes.operation import Features
from llama_py_server.routes.operations import ERRORS, GET, OLLAMA, OPERATIONS, POST
from llama_py_server.schema.completion import KNOWN
from llama_py_server.schema.constraints import is_constraint
from llama_py_server.wire.responses import as_error
from tests.server.served import ASK, LOCAL, holding, served
from tests.server.test_access import PUBLIC_PATHS

METHODS = ("get", "post", "delete")
NEEDS_VALIDATOR = pytest.mark.skipif(
    find_spec("openapi_spec_validator") is None, reason="needs openapi-spec-validator"
)


def fetch(client: TestClient) -> dict[str, Any]:
    found = client.get("/openapi.json")
    assert found.status_code == 200
    answer: dict[str, Any] = found.json()
    return answer


def operations(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in found["paths"].items():
        for method, one in methods.items():
            yield method.upper(), path, one


def list_routes(client: TestClient) -> set[tuple[str, str]]:
    made: Any = client.app
    return {
        (method, route.path_format) for route in made.routes for method in route.methods - {"HEAD"}
    }


def with_options(state: ModelState, **options: Any) -> TestClient:
    made = app(holding(state), ListenParams(**options))
    return TestClient(made, base_url=LOCAL, raise_server_exceptions=False)


@NEEDS_VALIDATOR
def test_the_document_is_valid(client: TestClient, state: ModelState) -> None:
    from openapi_spec_validator import validate

    validate(fetch(client))
    other = with_options(state, api_key=("k",), api_prefix="/ai", mcp_serve=bool(find_spec("mcp")))
    made: Any = other.app
    for features in (Features(), Features(embedding=False, several=False)):
        validate(document(made.state.served, features, True))


def test_every_route_is_described(client: TestClient, state: ModelState) -> None:
    """The document has exactly the routes of the application that are not disabled."""
    everything = with_options(state, mcp_serve=bool(find_spec("mcp")))
    made: Any = everything.app
    found = document(made.state.served, Features(), False)
    assert {one[:2] for one in operations(found)} == list_routes(everything)
    assert len({one["operationId"] for *_, one in operations(found)}) == len([*operations(found)])
    assert all(one["summary"] != path for _, path, one in operations(found))
    documented = {one[:2] for one in operations(fetch(client))}
    disabled = list_routes(client) - documented
    assert {"/embed", "/predict", "/infill", "/models/load"} <= {path for _, path in disabled}
    for method, path in disabled:
        more = {"model": "x", "query": "", "texts": []}
        answer = client.request(method, path.replace("{id_slot}", "0"), json=more)
        is_off = answer.status_code in (404, 424, 501)
        assert is_off or "model is not found" in answer.text, (path, answer.text)
    for method, path in documented - {("DELETE", "/models")}:
        if method != "GET" or path not in ("/slots",):
            answer = client.request(method, re.sub("{.*}", "0", path), json={})
            assert answer.status_code not in (424, 500, 501), (path, answer.text)


def test_handlers_of_the_tables_have_operations() -> None:
    from llama_py_server.app import ALWAYS

    handlers = {*ALWAYS.values(), *OLLAMA.values(), *GET.values(), *POST.values()}
    assert {h.__name__ for h in handlers - {*OPERATIONS}} == {"get"}  # the document's own
    assert {*ERRORS} <= {*OPERATIONS}


def test_keys(state: ModelState) -> None:
    client = with_options(state, api_key=("k",))
    assert client.get("/openapi.json").status_code == 401
    found = client.get("/openapi.json", headers={"x-api-key": "k"}).json()
    assert found["security"] == [{"bearer": []}, {"header": []}]
    assert found["components"]["securitySchemes"].keys() == {"bearer", "header"}
    is_open = {path for _, path, one in operations(found) if one.get("security") == []}
    assert is_open == PUBLIC_PATHS
    assert "security" not in fetch(with_options(state))


def test_parts_of_images_are_for_models_that_take_them(client: TestClient) -> None:
    assert "image_url" not in client.get("/openapi.json").text
    made: Any = client.app
    assert "image_url" in str(document(made.state.served, Features(), False))


def test_a_prefix_is_part_of_the_paths(state: ModelState) -> None:
    client = with_options(state, api_prefix="/ai", ui=False)
    found = client.get("/ai/openapi.json").json()
    assert all(path.startswith("/ai/") for path in found["paths"])
    assert "get" not in found["paths"]["/ai/"]


def test_fields_have_their_declarations(client: TestClient) -> None:
    found = fetch(client)
    body = found["paths"]["/completion"]["post"]["requestBody"]["content"]["application/json"]
    properties = body["schema"]["properties"]
    assert properties.keys() >= KNOWN.keys() and body["schema"]["required"] == ["prompt"]
    assert {"json_schema", "regex"} <= {name for name in properties if is_constraint(name)}
    limits = {"type": "integer", "minimum": -1, "maximum": 2**31 - 1}
    for name in ("n_predict", "max_tokens"):
        assert properties[name] == {"anyOf": [limits, {"type": "null"}]}
    tgi = found["paths"]["/generate"]["post"]["requestBody"]["content"]["application/json"]
    inner = tgi["schema"]["properties"]["parameters"]["anyOf"][0]["properties"]
    assert inner["max_new_tokens"]["anyOf"][0]["minimum"] == 1
    [slot] = found["paths"]["/slots/{id_slot}"]["post"]["parameters"][:1]
    assert slot["in"] == "path" and slot["schema"] == {"type": "integer"}
    (reload,) = found["paths"]["/v1/models"]["get"]["parameters"]
    assert (reload["name"], reload["required"]) == ("reload", False)


WRONG = {"boolean": 7, "integer": "x", "number": "x", "string": 7, "array": 7, "object": 7}


def test_declared_types_are_enforced(client: TestClient) -> None:
    """A value of another type than a declared field's is refused, with the name of the field."""
    body = fetch(client)["paths"]["/completion"]["post"]["requestBody"]["content"]
    properties = body["application/json"]["schema"]["properties"]
    for name in sorted(KNOWN):
        schema = properties[name]["anyOf"][0]
        if "type" not in schema:
            continue
        answer = client.post("/completion", json={"prompt": "a", name: WRONG[schema["type"]]})
        assert answer.status_code == 400 and f"'{name}'" in answer.text, (name, answer.text)


REQUESTS: dict[str, Any] = {
    "/completion": {"prompt": "a", "n_predict": 1},
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": ASK, "max_tokens": 1},
    "/v1/responses": {"input": "a", "max_output_tokens": 1},
    "/v1/messages": {"messages": ASK, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": ASK},
    "/apply-template": {"messages": ASK},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/embedding": {"content": "a"},
    "/v1/embeddings": {"input": ["a", "b"]},
    "/embed": {"inputs": "a"},
    "/embed_all": {"inputs": "a"},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "/score": {"text_1": "a", "text_2": "b"},
    "/pooling": {"input": "a"},
    "/generate": {"inputs": "a", "parameters": {"max_new_tokens": 1}},
    "/": {"inputs": "a"},
    "/v1/systemone": {
        "state": "a",
        "questions": {"q": {"type": "noul", "instructions": "Is it a letter?"}},
    },
    "/v1/streams/lookup": {"conversation_ids": []},
    "/lora-adapters": [],
}


def test_responses_and_errors_are_as_described() -> None:
    with served("--embeddings", "--metrics") as (client, _):
        found = fetch(client)

        def check(method: str, path: str, body: Any, ok: bool = True) -> None:
            one = found["paths"][path][method]
            if body is not None and ok:
                content = one["requestBody"]["content"]["application/json"]
                jsonschema.validate(body, {**content["schema"], **components})
            answer = client.request(method, path, json=body)
            assert answer.is_success is ok, (path, answer.text)
            kind = "200" if ok else "default"
            media = answer.headers["content-type"].partition(";")[0]
            schema = one["responses"][kind]["content"][media]["schema"]
            value = answer.json() if media == "application/json" else answer.text
            jsonschema.validate(value, {**schema, **components})

        components = {"components": found["components"]}
        for path, body in REQUESTS.items():
            check("post", path, body)
        for path in ("/health", "/v1/models", "/props", "/slots", "/metrics", "/info", "/page.js"):
            check("get", path, None)
        for path in ("/completion", "/v1/embeddings", "/embed", "/generate"):
            check("post", path, {"n_predict": "x", "input": 5, "inputs": 5, "prompt": 5}, False)
        assert (
            found["paths"]["/embed"]["post"]["responses"]["default"]
            != (found["paths"]["/completion"]["post"]["responses"]["default"])
        )
        assert as_error not in ERRORS.values()
    refs = ["Error", "HuggingFaceError"]
    for operation in (tei.embed, rerank.rerank):
        method = document(
            [ServedRoute("POST", "/x", operation, ERRORS.get(operation, as_error), False)],
            Features(),
            False,
        )
        content = method["paths"]["/x"]["post"]["responses"]["default"]["content"]
        alternatives = content["application/json"]["schema"]["anyOf"]
        assert [one["$ref"].rpartition("/")[2] for one in alternatives] == refs
