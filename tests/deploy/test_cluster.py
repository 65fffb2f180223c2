"""k8s/: what kustomize builds of both overlays is valid, restricted, bounded, and names nothing that is not there."""

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import Draft202012Validator, ValidationError

from offbeat.settings import Settings
from offbeat.tuning import tuned
from schemas.catalogue import TOPICS
from schemas.metrics import ROLES
from schemas.tables import TABLES
from schemas.topic import Topic
from sinks.webhook.sink import WebhookSink
from streams.compare import Compare
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.search import Search
from streams.segment import Segment
from tests.deploy.cluster import SECRET, Cluster, Object, Pod
from tests.deploy.command_lines import check_command, loaded
from tests.deploy.dockerfile import ROOT, stages
from tests.services import skipped_where_unavailable

VERSIONS = ("1.31", kubernetes_validate.latest_version())
KEDA = Draft202012Validator(json.loads(Path(__file__).with_name("keda_schema.json").read_text()))
GROUPS: dict[str, tuple[str, tuple[Topic, ...]]] = {
    "monitor": (Monitor.name, Monitor.reads),
    "search": (Search.name, Search.reads),
    "segment": (Segment.name, Segment.reads),
    "compare": (Compare.name, Compare.reads),
    "incidents": (Incidents.name, Incidents.reads),
    "sink": ("store", tuple(table.topic for table in TABLES.values())),
    "alert": (WebhookSink.name, WebhookSink.reads),
}
"""By workload: the name of its consumer group, and what it may read."""


@pytest.fixture(scope="module", params=["small", "large"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    with skipped_where_unavailable():
        return Cluster(request.param)


@pytest.fixture(scope="module")
def large() -> Cluster:
    with skipped_where_unavailable():
        return Cluster("large")


def validated(each: Object, kubernetes: str) -> None:
    """Raise for an object that is not as its schema says, or that has a field which no schema knows."""
    if each["apiVersion"].startswith("keda.sh/"):
        KEDA.validate(each)
    else:
        kubernetes_validate.validate(each, kubernetes, strict=True)


@pytest.mark.parametrize("kubernetes", VERSIONS)
def test_every_object_is_valid(cluster: Cluster, kubernetes: str) -> None:
    assert len(cluster.objects) > 20
    for each in cluster.objects:
        validated(each, kubernetes)


def test_an_object_that_is_not_valid_fails(large: Cluster) -> None:
    deployment: Any = json.loads(json.dumps(large.of("Deployment")[0]))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validated(deployment, VERSIONS[-1])
    scaled: Any = json.loads(json.dumps(large.of("ScaledObject")[0]))
    scaled["spec"]["maxReplicas"] = 8
    with pytest.raises(ValidationError):
        validated(scaled, VERSIONS[-1])


def test_every_role_runs_and_every_command_is_one_of_ours(cluster: Cluster) -> None:
    commands = {check_command(pod.container["args"]) for pod in cluster.pods()}
    assert commands == {*ROLES, "topics apply", "topics retire", "store migrate"}
    assert [pod.name for pod in cluster.pods("DaemonSet")] == ["agent"]
    assert {pod.name for pod in cluster.pods("Deployment")} == set(GROUPS)
    assert not any("command" in pod.container for pod in cluster.pods()), "the image's entry point is the command"


def test_every_variable_is_a_setting_and_has_a_value_that_it_takes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod in cluster.pods():
        settings = loaded(cluster.environment(pod), monkeypatch)
        if pod.workload["kind"] not in {"Job", "CronJob"}:
            assert (settings.worker.health_host, settings.worker.health_port) == ("0.0.0.0", 9600)
        if pod.labels.get("offbeat.io/uses-store"):
            assert (settings.store.engine, settings.store.password.get_secret_value()) == ("clickhouse", SECRET)
        grace = pod.spec.get("terminationGracePeriodSeconds", 0)
        assert pod.workload["kind"] in {"Job", "CronJob"} or grace > settings.worker.stop_within_s


def test_secrets_are_referred_to_and_never_told(cluster: Cluster) -> None:
    assert cluster.of("Secret") == []
    for pod in cluster.pods():
        for variable in pod.container.get("env", ()):
            secret = re.search(r"PASSWORD|USERNAME|WEBHOOK__(URL|SECRETS|ROUTING_KEY|AUTHORIZATION)", variable["name"])
            assert bool(secret) == ("secretKeyRef" in variable.get("valueFrom", {})), variable["name"]
    for settings in cluster.of("ConfigMap"):
        assert not [name for name in settings["data"] if re.search(r"PASSWORD|SECRET|TOKEN", name)]


def test_the_environment_has_no_variables_but_these(cluster: Cluster) -> None:
    """The names of services in a namespace would come as OFFBEAT_..., and be refused as settings."""
    assert all(pod.spec["enableServiceLinks"] is False for pod in cluster.pods())


def test_pods_have_no_privileges(cluster: Cluster) -> None:
    _, final = stages()
    for pod in cluster.pods():
        own, shared = pod.container["securityContext"], pod.spec["securityContext"]
        assert own == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, pod.name
        assert shared["runAsNonRoot"] is True
        assert shared["runAsUser"] > 0
        assert shared["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        if pod.name != "agent":
            assert f"{shared['runAsUser']}:{shared['runAsGroup']}" == final.last("USER")


def test_only_the_agents_share_folders_with_their_host(cluster: Cluster) -> None:
    for pod in cluster.pods():
        shared = {volume["hostPath"]["path"] for volume in pod.spec["volumes"] if "hostPath" in volume}
        assert bool(shared) == (pod.name == "agent")
    spaces = {each["metadata"]["name"]: each["metadata"]["labels"] for each in cluster.of("Namespace")}
    assert spaces["offbeat"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {pod.workload["metadata"]["namespace"] for pod in cluster.pods("Deployment", "Job", "CronJob")} == {
        "offbeat"
    }
    assert {pod.workload["metadata"]["namespace"] for pod in cluster.pods("DaemonSet")} == {"offbeat-agents"}


def test_there_is_a_place_for_temporary_files_and_for_every_mount(cluster: Cluster) -> None:
    for pod in cluster.pods():
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in pod.container["volumeMounts"]}
        assert set(mounts.values()) == set(volumes)
        assert "sizeLimit" in volumes[mounts["/tmp"]]["emptyDir"]


def test_the_agent_finds_its_folders_where_they_are_mounted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    [agent] = cluster.pods("DaemonSet")
    live = loaded(cluster.environment(agent), monkeypatch).live
    mounts = {mount["mountPath"]: mount["name"] for mount in agent.container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in agent.spec["volumes"]}
    assert volumes[mounts[str(live.rings)]]["hostPath"]["path"] == str(live.rings)
    kept = volumes[mounts[str(live.folder)]]
    room = 20 << 30 if kept.get("emptyDir") == {"sizeLimit": "20Gi"} else None
    assert room is None or room >= 4 * live.keep_bytes + live.spool_bytes


def test_thresholds_reach_running_workers_through_a_mounted_file(cluster: Cluster, tmp_path: Path) -> None:
    """Under a name of its own, and mounted whole: neither a hash in the name nor a subPath would let a change in."""
    content = cluster.settings("offbeat", "offbeat-tuning")
    tuned_pods = set()
    for pod in cluster.pods("Deployment"):
        named = cluster.environment(pod).get("OFFBEAT_WORKER__TUNING")
        if named is None:
            continue
        tuned_pods.add(pod.name)
        [mount] = [each for each in pod.container["volumeMounts"] if each["mountPath"] == str(Path(named).parent)]
        [volume] = [each for each in pod.spec["volumes"] if each["name"] == mount["name"]]
        assert volume["configMap"] == {"name": "offbeat-tuning"}
        assert "subPath" not in mount
        file = tmp_path / Path(named).name
        file.write_text(content[file.name] + "OFFBEAT_MONITOR__DELTA=1.3\n")
        assert tuned(Settings(), file)[1] == {"monitor.delta": "1.3"}
    assert tuned_pods == {"monitor", "search", "segment", "compare", "incidents"}


def test_certificates_are_read_where_they_are_mounted(large: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in large.pods():
        settings = loaded(large.environment(pod), monkeypatch)
        mounts = {mount["mountPath"] for mount in pod.container["volumeMounts"]}
        assert settings.kafka.ca_file is not None
        assert str(Path(settings.kafka.ca_file).parent) in mounts
        assert (settings.kafka.security_protocol, settings.kafka.username) == ("SASL_SSL", SECRET)
        if pod.labels.get("offbeat.io/uses-store"):
            assert settings.store.secure
            assert str(Path(str(settings.store.ca_certificates)).parent) in mounts


def test_resources_are_asked_for_and_bounded(cluster: Cluster) -> None:
    for pod in cluster.pods():
        resources = pod.container["resources"]
        assert {"cpu", "memory"} <= set(resources["requests"]) <= set(resources["limits"]), pod.name


def test_probes_ask_for_progress(cluster: Cluster) -> None:
    for pod in cluster.pods("Deployment", "DaemonSet"):
        [port] = pod.container["ports"]
        for name in ("startupProbe", "livenessProbe"):
            assert pod.container[name]["httpGet"] == {"path": "/live", "port": port["name"]}, pod.name
        assert port["containerPort"] == 9600
        annotations = pod.template["metadata"]["annotations"]
        assert annotations["prometheus.io/port"] == "9600"
        startup = pod.container["startupProbe"]
        slowest_s = 90 if pod.labels.get("offbeat.io/uses-store") else 30
        assert startup["periodSeconds"] * startup["failureThreshold"] > slowest_s
    for pod in cluster.pods("Deployment"):
        assert pod.container["readinessProbe"]["httpGet"]["path"] == "/live"


def test_a_worker_keeps_its_name_over_a_restart(cluster: Cluster) -> None:
    for pod in cluster.pods("Deployment"):
        [instance] = [each for each in pod.container["env"] if each["name"] == "OFFBEAT_WORKER__INSTANCE"]
        assert instance["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_images_are_of_this_version(cluster: Cluster) -> None:
    assert {pod.container["image"] for pod in cluster.pods()} == {f"registry.example/offbeat:{version('offbeat')}"}


def test_every_deployment_has_a_disruption_budget(cluster: Cluster) -> None:
    budgets = {each["metadata"]["name"]: each["spec"] for each in cluster.of("PodDisruptionBudget")}
    assert set(budgets) == set(GROUPS)
    for pod in cluster.pods("Deployment"):
        assert budgets[pod.name]["selector"]["matchLabels"].items() <= pod.labels.items()
        assert budgets[pod.name]["maxUnavailable"] == 1


def test_jobs_that_are_over_are_retired_once_a_day(cluster: Cluster) -> None:
    [retirement] = cluster.pods("CronJob")
    assert check_command(retirement.container["args"]) == "topics retire"
    minute, hour, *days = retirement.workload["spec"]["schedule"].split()
    assert (minute.isdecimal(), hour.isdecimal(), days) == (True, True, ["*", "*", "*"])
    assert retirement.workload["spec"]["concurrencyPolicy"] == "Forbid"


def test_labels_select_what_they_mean(cluster: Cluster) -> None:
    for pod in cluster.pods("Deployment", "DaemonSet"):
        selector = pod.workload["spec"]["selector"]["matchLabels"]
        selected = [each.name for each in cluster.pods("Deployment", "DaemonSet") if selects(selector, each)]
        assert selected == [pod.name]


def selects(labels: Object, pod: Pod) -> bool:
    return labels.items() <= pod.labels.items()


def egress(cluster: Cluster, pod: Pod) -> set[int]:
    """The TCP ports that a pod may reach; fails where no policy bounds them."""
    ports: set[int] = set()
    bounding = [
        policy["spec"]
        for policy in cluster.of("NetworkPolicy")
        if policy["metadata"]["namespace"] == pod.workload["metadata"]["namespace"]
        and selects(policy["spec"]["podSelector"].get("matchLabels", {}), pod)
        and "Egress" in policy["spec"]["policyTypes"]
    ]
    assert bounding, pod.name
    for rule in (rule for policy in bounding for rule in policy["egress"]):
        assert rule["ports"], "an empty rule lets everything through"
        for port in rule["ports"]:
            if port["protocol"] == "TCP":
                ports |= set(range(port["port"], port.get("endPort", port["port"]) + 1))
    return ports


def test_pods_reach_what_they_need_and_no_more(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in cluster.pods():
        settings, ports = loaded(cluster.environment(pod), monkeypatch), egress(cluster, pod)
        brokers = {int(server.rpartition(":")[2]) for server in settings.kafka.bootstrap_servers.split(",")}
        assert brokers <= ports
        assert ({9000, 9440} <= ports) == (pod.name in {"sink", "migrations"}), pod.name
        assert (443 in ports) == (pod.name == "alert")
        assert 53 in ports
        assert len(ports) <= 8


def test_nobody_is_let_in_but_prometheus(cluster: Cluster) -> None:
    for policy in cluster.of("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            assert [port["port"] for port in rule["ports"]] == [9600]
            [source] = rule["from"]
            assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    for space in ("offbeat", "offbeat-agents"):
        defaults = [
            policy["spec"]
            for policy in cluster.of("NetworkPolicy")
            if (policy["metadata"]["namespace"], policy["metadata"]["name"]) == (space, "default")
        ]
        assert [set(policy["policyTypes"]) for policy in defaults] == [{"Ingress", "Egress"}]


def test_a_role_is_scaled_on_its_own_lag_up_to_the_partitions(large: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = {pod.name: pod for pod in large.pods("Deployment")}
    scaled = {each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in large.of("ScaledObject")}
    assert set(scaled) == set(pods) == set(GROUPS)
    for name, spec in scaled.items():
        group, reads = GROUPS[name]
        prefix = loaded(large.environment(pods[name]), monkeypatch).worker.group_prefix
        assert spec["minReplicaCount"] == 1
        assert "replicas" not in pods[name].workload["spec"], "applying again would undo the scaling"
        for trigger in spec["triggers"]:
            assert trigger["metadata"]["consumerGroup"] == f"{prefix}.{group}"
            assert trigger["metadata"]["topic"] in {topic.name for topic in reads}
            assert spec["maxReplicaCount"] <= TOPICS[trigger["metadata"]["topic"]].partitions
            assert trigger["metadata"]["bootstrapServersFromEnv"] in large.environment(pods[name])
    assert {spec["maxReplicaCount"] for spec in scaled.values()} == {8}


def test_scaling_is_let_in_by_the_brokers_as_the_workers_are(large: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    [credentials] = large.of("TriggerAuthentication")
    monitor = next(pod for pod in large.pods("Deployment") if pod.name == "monitor")
    kafka = loaded(large.environment(monitor), monkeypatch).kafka
    refs = [
        each["valueFrom"]["secretKeyRef"]
        for each in monitor.container["env"]
        if each["name"].startswith("OFFBEAT_KAFKA__")
    ]
    given = {each["key"]: each["name"] for each in credentials["spec"]["secretTargetRef"]}
    assert given == {**{ref["key"]: ref["name"] for ref in refs}, "ca.crt": "offbeat-kafka"}
    for scaled in large.of("ScaledObject"):
        for trigger in scaled["spec"]["triggers"]:
            assert trigger["authenticationRef"]["name"] == credentials["metadata"]["name"]
            assert trigger["metadata"]["sasl"].replace("_", "") == str(kafka.sasl_mechanism).replace("-", "").lower()
            assert trigger["metadata"]["tls"] == "enable"


def test_no_file_of_k8s_is_left_out() -> None:
    files = {path.name for path in (ROOT / "k8s").rglob("*.yaml")} - {"kustomization.yaml"}
    named = "\n".join(path.read_text() for path in (ROOT / "k8s").rglob("kustomization.yaml"))
    assert [name for name in files if name not in named] == []
