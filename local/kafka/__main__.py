"""A broker in the foreground: python -m local.kafka [--folder DIR] [--port PORT]."""

import argparse
import sys
from pathlib import Path

from local.foreground import serve
from local.kafka import LocalKafka


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.kafka", description="Run a Kafka broker on loopback.")
    parser.add_argument("--folder", type=Path, help="keep its data here (default: a temporary folder)")
    parser.add_argument("--port", type=int, default=9092, help="where clients connect (default: %(default)s)")
    options = parser.parse_args()
    return serve(
        lambda: LocalKafka(options.folder, options.port), lambda kafka: f"bootstrap servers: {kafka.bootstrap_servers}"
    )


if __name__ == "__main__":
    sys.exit(main())
