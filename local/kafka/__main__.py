"""A broker in the foreground: python -m local.kafka [--folder DIR] [--port PORT]."""

import argparse
import signal
import sys
from pathlib import Path

from local.kafka import LocalKafka
from local.service import LocalServiceError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.kafka", description="Run a Kafka broker on loopback.")
    parser.add_argument("--folder", type=Path, help="keep its data here (default: a temporary folder)")
    parser.add_argument("--port", type=int, default=9092, help="where clients connect (default: %(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("starting Kafka ...", flush=True)
    try:
        with LocalKafka(options.folder, options.port) as kafka:
            print(f"bootstrap servers: {kafka.bootstrap_servers} (log: {kafka.log_path}; Ctrl-C stops it)", flush=True)
            code = kafka.wait()
            print(f"Kafka ended by itself with code {code}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except LocalServiceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
