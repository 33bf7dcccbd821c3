"""The jars that the stack of one machine needs. PySpark's Ivy fetches them from a Maven repository.

All clones on the machine share a cache with one directory for each set:
``${STREAMPLAN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/streamplan}/jars/<set>-<version>``. ``STREAMPLAN_MAVEN`` names the
root of a repository that is used instead of Maven Central. Run as a module, it fetches the sets that are named as
arguments.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from streamplan.errors import Refused, StreamplanError
from streamplan.java import find_java, install_java, require_java
from streamplan.settings import Settings
from streamplan.spark.submit import pyspark_home

FETCH_SECONDS = 600


@dataclass(frozen=True)
class JarSet:
    """Jars that are used together.

    Attributes:
        name: The name of the set.
        version: Its version, part of the name of its directory.
        coordinates: Maven coordinates ``group:artifact:version``.
        transitive: Whether everything that they depend on belongs to the set, too.
    """

    name: str
    version: str
    coordinates: tuple[str, ...]
    transitive: bool


BROKERS = JarSet(
    "brokers",
    "4.3.1",
    # Kafka logs through slf4j 1.7. Its distribution contains this implementation, but its jar does not depend on it.
    ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"),
    transitive=True,
)
SPARK = JarSet(
    "spark",
    "4.2.0",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        # Not every repository serves 4.2.0. The connector calls this jar for delegation tokens only.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
        # For checkpoints on a local disk, see streamplan.spark.session.
        "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",
    ),
    transitive=False,
)
KAFKA_STREAMS = JarSet("kafka-streams", "4.3.1", ("org.apache.kafka:kafka-streams:4.3.1",), transitive=True)
KAFKA_STREAMS_TEST_UTILS = JarSet(
    "kafka-streams-test-utils", "4.3.1", ("org.apache.kafka:kafka-streams-test-utils:4.3.1",), transitive=True
)
BUCKET = JarSet(
    "bucket",
    "3.5.0-2.35.4",
    # Checkpoints at s3a://…: hadoop-aws of PySpark's Hadoop ends with a NoClassDefFoundError without the others.
    (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "software.amazon.awssdk:bundle:2.35.4",
    ),
    transitive=False,
)
JAR_SETS = {jars.name: jars for jars in (BROKERS, SPARK, KAFKA_STREAMS, KAFKA_STREAMS_TEST_UTILS, BUCKET)}


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory that all clones of one user share."""
    if configured := environment.get("STREAMPLAN_CACHE"):
        return Path(configured).absolute()
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "streamplan"


def directory_of(jars: JarSet, environment: Mapping[str, str]) -> Path:
    """Return the directory of a set, whether it exists or not. A directory of this name is always complete."""
    return cache_directory(environment) / "jars" / f"{jars.name}-{jars.version}"


def require(jars: JarSet, environment: Mapping[str, str]) -> Path:
    """Return the directory of a set.

    Raises:
        Refused: The set was not fetched.
    """
    directory = directory_of(jars, environment)
    if not directory.is_dir():
        raise Refused(
            f"Jars {jars.name} {jars.version}",
            expected=f"in {directory}",
            observed="no such directory",
            remedy=f"Fetch them: python -m {__name__} {jars.name}",
        )
    return directory


def fetch(jars: JarSet, environment: Mapping[str, str], *, java_home: Path, log_file: Path) -> Path:
    """Return the directory of the set, and fetch the set first when it does not exist.

    The directory appears when it is complete: an interrupted call leaves none under this name.

    Args:
        environment: Names the cache, the repository and the proxy.
        java_home: The Java that runs Ivy.
        log_file: The file for Ivy's output.

    Raises:
        StreamplanError: Ivy failed. The error names the log.
    """
    directory = directory_of(jars, environment)
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as scratch:
        draft = Path(scratch)
        (draft / "settings.xml").write_text(_settings(environment, cache_directory(environment) / "ivy"))
        (draft / "ivy.xml").write_text(_module(jars))
        argv = [str(java_home / "bin" / "java"), *_proxy_options(environment), "-jar", str(_ivy_jar())]
        argv += ["-settings", str(draft / "settings.xml"), "-ivy", str(draft / "ivy.xml"), "-types", "jar", "bundle"]
        argv += ["-retrieve", f"{draft}/lib/[artifact]-[revision].[ext]"]
        try:
            with log_file.open("wb") as log:
                subprocess.run(
                    argv,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=FETCH_SECONDS,
                )
        except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise StreamplanError(
                f"Jars {jars.name} {jars.version}",
                expected="retrieved by Ivy",
                observed=f"{type(error).__name__} after at most {FETCH_SECONDS} s",
                remedy=f"See {log_file}. Behind a mirror, set STREAMPLAN_MAVEN to its root.",
            ) from error
        try:
            (draft / "lib").rename(directory)
        except OSError:
            # Another clone was first, and a directory of this name is complete.
            if not directory.is_dir():
                raise
    return directory


def _settings(environment: Mapping[str, str], cache: Path) -> str:
    mirror = environment.get("STREAMPLAN_MAVEN")
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""
    # With this lock several clones can fetch at once. It is a lock of the kernel, which a killed process releases.
    return f"""<ivysettings>
  <settings defaultResolver="maven"/>
  <caches defaultCacheDir={quoteattr(str(cache))} lockStrategy="artifact-lock-nio"/>
  <resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers>
</ivysettings>
"""


def _module(jars: JarSet) -> str:
    conf = "jars->default" if jars.transitive else "jars->master"
    dependencies = "\n".join(
        f'    <dependency org="{group}" name="{artifact}" rev="{version}" conf="{conf}"'
        f' transitive="{str(jars.transitive).lower()}"/>'
        for group, artifact, version in (coordinate.split(":") for coordinate in jars.coordinates)
    )
    return f"""<ivy-module version="2.0">
  <info organisation="streamplan" module="{jars.name}"/>
  <configurations><conf name="jars"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def _ivy_jar() -> Path:
    for jar in pyspark_home().glob("jars/ivy-*.jar"):
        return jar
    raise Refused(
        "Ivy",
        expected=f"in {pyspark_home()}/jars",
        observed="none",
        remedy="Install PySpark again: `pip install 'streamplan[spark]'`, or `make setup` in a clone.",
    )


def fetch_missing(
    wanted: Iterable[JarSet], environment: Mapping[str, str], logs: Path, report: Callable[[str], None]
) -> None:
    """Fetch the sets that are not in the cache of this machine, at the same time.

    Args:
        environment: Names the cache, the repository and the proxy.
        logs: The directory for Ivy's output.
        report: Is told what is fetched.

    Raises:
        Refused: There is no fit Java.
        StreamplanError: Ivy failed. The error names the log.
    """
    missing = [jars for jars in wanted if not directory_of(jars, environment).is_dir()]
    if not missing:
        return
    java_home = require_java(environment)
    report(f"Fetching jars, once for this machine: {', '.join(f'{jars.name} {jars.version}' for jars in missing)}.")

    def fetched(jars: JarSet) -> Path:
        return fetch(jars, environment, java_home=java_home, log_file=logs / f"jars-{jars.name}.log")

    with ThreadPoolExecutor(max_workers=len(missing)) as pool:
        for directory in pool.map(fetched, missing):
            report(f"{len(list(directory.glob('*.jar')))} jars in {directory}")


def _proxy_options(environment: Mapping[str, str]) -> list[str]:
    """Translate HTTPS_PROXY into Java's properties, because Java does not read it."""
    proxy = urlsplit(environment.get("HTTPS_PROXY") or environment.get("https_proxy") or "")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 8080}"]


def main(arguments: list[str] | None = None) -> int:
    """Fetch the sets that the command line names, and install Java where that is possible."""
    parser = argparse.ArgumentParser(
        description="Fetch sets of jars into the cache. Install Java first where there is none and it can be installed."
    )
    parser.add_argument("sets", nargs="+", choices=sorted(JAR_SETS), help="what to fetch")
    names = parser.parse_args(arguments).sets
    logs = Settings.from_environment().logs

    def report(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        if find_java(os.environ) is None:
            report("Installing Java, because neither 17 nor 21 was found.")
            install_java(logs / "java-install.log")
        fetch_missing([JAR_SETS[name] for name in names], os.environ, logs, report)
    except StreamplanError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
