"""Download of models from any web server (-mu URL), to a folder or to the file that -m names."""

from __future__ import annotations

import base64
import http.client
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from ggml_py.errors import ModelError
from llama_py.params.texts import shown_url
from llama_py_tools.command.progress import Progress

_PART = re.compile(r"-00001-of-(\d{5})(?=\.gguf$)")
CHUNK = 2**20


def folder() -> Path:
    """Return LLAMA_CACHE, like llama.cpp, or the user's own folder."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("LLAMA_CACHE") or Path(user_cache_dir("llama-py")) / "models")


def download(url: str, to: str, offline: bool) -> str:
    """Return the path of a model, downloaded if needed; for shards the first shard's path, with
    all others next to it. ModelError if the download fails."""
    parts = urllib.parse.urlsplit(url)
    name = parts.path.rpartition("/")[2]
    if parts.scheme not in ("http", "https") or not name:
        shown = shown_url(url)
        raise ModelError(f"-mu {shown}: expected http(s)://HOST/.../FILE.gguf")
    first = Path(to) if to else folder() / name
    found = _PART.search(parts.path)
    for no in range(1, (int(found[1]) if found else 1) + 1):
        number = f"-{no:05d}-of-{found[1]}" if found else ""
        path = parts.path if found is None else _PART.sub(number, parts.path)
        at = first if no == 1 else first.with_name(path.rpartition("/")[2])
        _fetch(parts._replace(path=path).geturl(), at, offline)
    return str(first)


def _fetch(url: str, at: Path, offline: bool) -> None:
    """Download a file, which gets its name only when it is complete."""
    if at.exists():
        return
    shown = shown_url(url)
    if offline:
        raise ModelError(f"-mu {shown}: {at} is missing; run without --offline to download it")
    at.parent.mkdir(parents=True, exist_ok=True)
    part = at.with_name(at.name + ".part")
    progress = Progress(f"fetching {at.name}")
    try:
        with urllib.request.urlopen(_request(url), timeout=60) as answer, part.open("wb") as file:
            total, done = int(answer.headers.get("Content-Length") or 0), 0
            while chunk := answer.read(CHUNK):
                done += file.write(chunk)
                progress(done, max(total, done + 1), f"{done >> 20} MiB")
        if done < total:
            raise ModelError(
                f"-mu {shown}: only {done} of {total} bytes were downloaded; try again"
            )
        shutil.move(part, at)
    except ModelError:
        raise
    except urllib.error.HTTPError as e:
        raise ModelError(f"-mu {shown}: {e}") from None
    except urllib.error.URLError as e:
        raise ModelError(
            f"-mu {shown}: cannot be reached ({e.reason}); check the network"
        ) from None
    except (http.client.InvalidURL, ValueError):  # messages with parts of the URL
        raise ModelError(f"-mu {shown}: not the URL of a file; check its host and path") from None
    except http.client.HTTPException as e:
        raise ModelError(f"-mu {shown}: {e}") from None
    finally:
        progress.close()
        part.unlink(missing_ok=True)


def _request(url: str) -> urllib.request.Request:
    """Return a request with name and password in a header, for this host only."""
    parts = urllib.parse.urlsplit(url)
    secret, mark, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl())
    if mark:
        code = base64.b64encode(urllib.parse.unquote(secret).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {code}")
    return request
