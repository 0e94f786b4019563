"""Passwords and tokens are options of source and sink, and Spark tells a lot about options: these it must not tell."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

import penstock
from penstock.server import Config, Server
from penstock.server._users import Users
from penstock.spark import with_writer_watermark
from tests.server.apart import eventually
from tests.server.cluster import config_of, sent_bytes, status_of
from tests.spark.conftest import STREAM
from tests.spark.processes import process_of
from tests.spark.spark_harness import event_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

OUT: Final = "plant/out"
PASSWORD: Final = "correct horse"


class Secrets:
    """A server, the options of two users, and their secrets."""

    def __init__(self, server: Server, users: Users) -> None:
        token = users.token("anna", 3600)
        self.source: Final = {"store": server.address, "stream": STREAM, "user": "anna", "password": PASSWORD}
        self.sink: Final = {"store": server.address, "stream": OUT, "token": token}
        self._hidden: Final = (PASSWORD, token, token.partition(".")[2])

    def told_in(self, text: str) -> list[str]:
        """Return the secrets that a text tells."""
        return [one for one in self._hidden if one in text]


@pytest.fixture
def secrets(folder: Path) -> Iterator[Secrets]:
    folder.mkdir()
    users = Users.open(folder / "users.json")
    users.add("anna", PASSWORD)
    users.grant("anna", "admin", "*")
    with Server(Config(store=str(folder), port=0, http_port=0)) as server:
        with penstock.connect(server.address, user="anna", password=PASSWORD) as store:
            for name in (STREAM, OUT):
                store.create_stream(name)
            with store.writer(STREAM) as writer:
                writer.write_batch([b'{"at": 1}'] * 10)
        yield Secrets(server, users)


def said_in(folder: Path) -> str:
    """Return what is in all files of a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return "".join(path.read_bytes().decode("latin-1") for path in files)


def test_plans_progress_errors_and_checkpoints_do_not_tell_secrets(
    spark: SparkSession, secrets: Secrets, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of them are shown to others: in notebooks, by Spark's pages, in reports of what went wrong."""
    for options in (secrets.source, secrets.sink | {"stream": STREAM}):
        spark.read.format("penstock").options(**options).load().explain(extended=True)
        rows = spark.readStream.format("penstock").options(**options).load()
        with_writer_watermark(rows, "time", event_time()).explain(extended=True)
    assert capfd.readouterr().out.count("(redacted)") >= 2, "Spark would have shown them"
    rows = spark.readStream.format("penstock").options(**secrets.source).load()
    writer = rows.select("event").writeStream.format("penstock").options(**secrets.sink)
    query = writer.option("checkpointLocation", str(tmp_path / "one")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(extended=True)
    writer = rows.selectExpr("nullif(event, event) AS event").writeStream.format("penstock").options(**secrets.sink)
    with pytest.raises(PySparkException) as failed:
        writer.option("checkpointLocation", str(tmp_path / "two")).trigger(availableNow=True).start().awaitTermination()
    said = capfd.readouterr().out + "".join(one.json for one in query.recentProgress) + str(failed.value)
    assert "plant/readings" in said
    assert not secrets.told_in(said)
    assert not secrets.told_in(said_in(tmp_path / "one") + said_in(tmp_path / "two"))


def test_keys_of_a_bucket_are_not_told(
    spark: SparkSession,
    s3_address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """They open all streams of the store. Tasks read the bucket with them, and the server sends no event."""
    keys = {name: os.environ[f"AWS_{name.upper()}"] for name in ("access_key_id", "secret_access_key")}
    with Server(config_of(tmp_path, "a", plogs=s3_address)) as server:
        eventually(lambda: status_of(server.http_port) == "ok")
        with penstock.connect(server.address) as store:
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                writer.write_batch([b"event"] * 1000)
        for name in keys:
            monkeypatch.delenv(f"AWS_{name.upper()}")
        options = {f"plogs_secret_{name}": value for name, value in keys.items()} | {
            "plogs": f"{s3_address}?cache_folder={tmp_path}/copies",
            "plogs_secret_endpoint": os.environ["AWS_ENDPOINT_URL"],
            "plogs_secret_region": os.environ["AWS_REGION"],
            "plogs_secret_allow_http": "true",
        }
        options |= {"store": server.address, "stream": STREAM}
        source = spark.read.format("penstock")
        rows = source.options(**options).load()
        rows.explain(extended=True)
        spark.readStream.format("penstock").options(**options).load().explain(extended=True)
        assert rows.where("event = 'event'").count() == 1000
        assert sent_bytes(server.http_port) == 0
        with pytest.raises(PySparkException, match="StorageUnusable") as refused:
            source.options(**options | {"plogs_secret_secret_access_key": "wrong-key"}).load().count()
        with pytest.raises(PySparkException, match="BadArgument: unknown option for s3://") as unknown:
            source.options(**options, plogs_secret_acces_key="wrong-key").load().count()
    said = capfd.readouterr().out + str(refused.value) + str(unknown.value)
    assert "(redacted)" in said
    assert not [value for value in (*keys.values(), "wrong-key") if value in said]


@pytest.mark.long
def test_the_log_of_a_driver_does_not_tell_secrets(secrets: Secrets, tmp_path: Path) -> None:
    """It is kept for long, and read by many; at its wordiest, and when a query fails."""
    log = tmp_path / "log"
    options = json.dumps([secrets.source, secrets.sink])
    with process_of("tests.spark.copy_job", "serve", "local[2]", tmp_path, log=log, OPTIONS=options) as process:
        assert process.wait() == 1
    said = log.read_text()
    assert "penstock.errors.BadArgument: the column 'event' has 10 nulls" in said
    assert " INFO " in said
    assert "(redacted)" in said
    assert not secrets.told_in(said)
