#!/usr/bin/python3
"""Make a database cluster if the volume is empty, then become postgres: process 1 gets the signals itself."""

import os
import pathlib
import subprocess
import sys
import tempfile

data = pathlib.Path(os.environ["PGDATA"])
user = os.environ.get("POSTGRES_USER", "postgres")
database = os.environ.get("POSTGRES_DB", user)
password = os.environ.get("POSTGRES_PASSWORD")

if not (data / "PG_VERSION").exists():
    if not password:
        sys.exit("set POSTGRES_PASSWORD")
    half = data.with_name(f"{data.name}.part")
    subprocess.run(["rm", "-rf", half], check=True)
    with tempfile.NamedTemporaryFile("w", dir=data.parent) as file:
        file.write(password)
        file.flush()
        subprocess.run(
            [
                "initdb",
                f"--username={user}",
                f"--pwfile={file.name}",
                "--auth-host=scram-sha-256",
                "--auth-local=trust",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "--pgdata",
                half,
            ],
            check=True,
        )
    with (half / "pg_hba.conf").open("a") as rules:
        rules.write("host all all all scram-sha-256\nhost replication all all scram-sha-256\n")
    if database != "postgres":
        subprocess.run(
            ["postgres", "--single", "-D", half, "-j", "postgres"],
            input=f'CREATE DATABASE "{database}";\n',
            text=True,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    half.rename(data)

os.execvp(
    "postgres",
    [
        "postgres",
        "-D",
        str(data),
        "-c",
        "listen_addresses=*",
        "-c",
        f"unix_socket_directories={data.parent}",
        *sys.argv[1:],
    ],
)
