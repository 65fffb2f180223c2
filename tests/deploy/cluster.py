"""The objects of an overlay as kustomize builds them, and how to look into them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from local.kustomize import build
from tests.deploy.dockerfile import ROOT

Object = Mapping[str, Any]
SECRET = "a-secret"
"""What stands for the value of a secret."""


@dataclass(frozen=True)
class Pod:
    """A workload's pod: what it is part of, its specification and its one container."""

    workload: Object
    template: Object
    spec: Object
    container: Object

    @property
    def name(self) -> str:
        return str(self.workload["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.template["metadata"]["labels"]
        return labels


class Cluster:
    """What an overlay puts into a cluster."""

    def __init__(self, overlay: str) -> None:
        self.objects: list[Object] = list(yaml.safe_load_all(build(ROOT / "k8s" / "overlays" / overlay)))

    def of(self, *kinds: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] in kinds]

    def pods(self, *kinds: str) -> Iterator[Pod]:
        """The pods of the workloads of some kinds; without any, of all."""
        for workload in self.of(*(kinds or ("Deployment", "DaemonSet", "Job", "CronJob"))):
            of_one = workload["spec"]["jobTemplate"] if workload["kind"] == "CronJob" else workload
            template = of_one["spec"]["template"]
            [container] = template["spec"]["containers"]
            yield Pod(workload, template, template["spec"], container)

    def environment(self, pod: Pod) -> dict[str, str]:
        """The variables of a pod, with something in the place of secrets and of what the cluster fills in."""
        space = pod.workload["metadata"]["namespace"]
        found: dict[str, str] = {}
        for source in pod.container.get("envFrom", ()):
            found |= self.settings(space, source["configMapRef"]["name"])
        for variable in pod.container.get("env", ()):
            found[variable["name"]] = variable.get("value", SECRET)
        return found

    def settings(self, space: str, name: str) -> Mapping[str, str]:
        [data] = [
            each["data"]
            for each in self.of("ConfigMap")
            if (each["metadata"]["namespace"], each["metadata"]["name"]) == (space, name)
        ]
        found: Mapping[str, str] = data
        return found
