"""packaging/: images, charts, units and packages fit the project, and agree with its pages."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from check_wheel import IN_WHEEL, missing
from disque_py import __version__
from disque_py.config.directives import BY_NAME
from disque_py.gateway.settings import BY_NAME as GATEWAY_SETTINGS
from disque_py.server.settings_file import load

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

BUILD = "import sys, setuptools.build_meta as backend; print(backend.build_wheel(sys.argv[1]))"
GO_LIBRARIES = "/usr/share/gocode/src/github.com/Masterminds/sprig"
RENDERED = {"default": None, "everything": "packaging/helm/examples/everything.yaml"}


@pytest.fixture
def dockerfile(root):
    """The text of the Dockerfile."""
    return (root / "packaging/image/Dockerfile").read_text(encoding="utf-8")


@pytest.fixture
def chart(root):
    """The folder of the chart."""
    return root / "packaging/helm/disque"


def read_yaml(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def manifests(root, name):
    text = (root / f"packaging/helm/rendered/{name}.yaml").read_text(encoding="utf-8")
    return {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(text)}


def copied(dockerfile, root, folder):
    """A folder with the files that the Dockerfile copies out of the checkout."""
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        for source in sources.split():
            if (root / source).is_dir():
                shutil.copytree(root / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / source, folder)
    return folder


# The image.


def test_the_image_has_all_that_the_build_needs(dockerfile, root, tmp_path):
    """This includes setup.py: without it the build succeeds, but makes a slow program."""
    source = tmp_path / "source"
    source.mkdir()
    copied(dockerfile, root, source)
    assert (source / "setup.py").exists()
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)],
        cwd=source,
        env={**os.environ, "DISQUE_PY_COMPILE": "no"},
        capture_output=True,
        text=True,
        check=True,
    )
    names = zipfile.ZipFile(tmp_path / built.stdout.split()[-1]).namelist()
    assert missing(names, IN_WHEEL) == []
    modules = [path.relative_to(root).as_posix() for path in root.glob("disque_py/**/*.py")]
    assert [name for name in modules if name not in names] == []


def test_the_build_context_has_what_the_image_copies_and_no_more(dockerfile, root):
    sources = {
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE) for word in line.split()
    }
    ignored = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    assert "*" in ignored


def test_the_image_is_the_compiled_build_or_none(dockerfile):
    assert "DISQUE_PY_COMPILE=yes /build/bin/pip wheel" in dockerfile
    assert "disque-server --version | grep build=compiled" in dockerfile


def test_the_image_runs_as_a_user_without_rights(dockerfile):
    assert "--uid 10001" in dockerfile
    assert re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE) == ["10001:10001"]


def test_stages_of_the_image_exist(dockerfile):
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", dockerfile, re.MULTILINE))
    assert set(re.findall(r"--from=(\w+)", dockerfile)) <= stages


def test_hadolint_takes_the_dockerfile(root):
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    words = ["hadolint", root / "packaging/image/Dockerfile"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_example_of_the_image_is_opened_on_purpose(dockerfile):
    """protected-mode refuses all connections from outside a container."""
    assert "-e DISQUE_REQUIREPASS=" in dockerfile


# Variables.


def check_variables(names):
    """Check that each variable names a directive of a node or a setting of the gateway."""
    known = {f"DISQUE_{name.upper().replace('-', '_')}" for name in BY_NAME}
    known |= {setting.variable for setting in GATEWAY_SETTINGS.values()}
    assert [name for name in names if name.startswith("DISQUE_") and name not in {*known, "DISQUE_PASSWORD"}] == []


def test_variables_of_the_compose_file_are_directives(root):
    services = read_yaml(root / "packaging/compose/compose.yaml")["services"]
    assert sorted(services) == ["gateway", "node1", "node2", "node3"]
    for service in services.values():
        check_variables(service["environment"])
        assert service["read_only"]
        context = root / "packaging/compose" / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("name", RENDERED)
def test_variables_of_the_manifests_are_directives(root, name):
    for found in manifests(root, name).values():
        for container in found.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            check_variables([variable["name"] for variable in container.get("env", [])])


# The chart.


@pytest.mark.parametrize("name", RENDERED)
def test_the_schema_takes_the_values_of_the_chart_and_of_its_example(root, chart, name):
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    values = read_yaml(chart / "values.yaml")
    if RENDERED[name]:
        values |= read_yaml(root / RENDERED[name])
    jsonschema.validate(values, schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 0},
        {"config": {"requirepass": "x"}},
        {"config": {"events": True}},
        {"auth": {}},
        {"replica": 3},
        {"scaledObjects": [{"name": "a", "deployment": "a", "max": 1, "tokenEnv": "T"}]},
    ],
    ids=str,
)
def test_the_schema_refuses_mistakes(chart, wrong):
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**read_yaml(chart / "values.yaml"), **wrong}, schema)


def test_the_schema_names_every_value(chart):
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    assert set(read_yaml(chart / "values.yaml")) == set(schema["properties"]) - {"global"}


def test_nodes_find_each_other_before_they_are_ready(root):
    found = manifests(root, "default")
    stateful = found["StatefulSet", "disque"]["spec"]
    assert stateful["podManagementPolicy"] == "Parallel"
    service = found["Service", stateful["serviceName"]]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]
    env = {one["name"]: one for one in stateful["template"]["spec"]["containers"][0]["env"]}
    domain = f"{stateful['serviceName']}.default.svc.cluster.local"
    assert env["DISQUE_CLUSTER_ANNOUNCE_IP"]["value"] == f"$(POD_NAME).{domain}"
    assert env["DISQUE_CLUSTER_SEEDS"]["value"].split() == [f"disque-{at}.{domain}:7711" for at in range(3)]


def test_only_a_node_that_is_stuck_is_restarted(root):
    """A node in the minority is not ready, but it must not be restarted."""
    pod = manifests(root, "default")["StatefulSet", "disque"]["spec"]["template"]["spec"]
    node = pod["containers"][0]
    assert node["readinessProbe"]["exec"]["command"] == ["disque-cli", "--health"]
    assert node["livenessProbe"]["exec"]["command"] == ["disque-cli", "PING"]


def test_one_node_at_a_time_may_be_taken_away(root):
    assert manifests(root, "default")["PodDisruptionBudget", "disque"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("name", RENDERED)
def test_containers_of_the_chart_have_a_read_only_root_and_no_rights(root, name):
    for found in manifests(root, name).values():
        if found["kind"] not in ("StatefulSet", "Deployment"):
            continue
        pod = found["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert not pod["enableServiceLinks"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", RENDERED)
def test_manifests_have_secrets_by_reference_only(root, name):
    for found in manifests(root, name).values():
        assert found["kind"] != "Secret"
        for container in found.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            for variable in container.get("env", []):
                if re.search("PASS|SECRET|AUTH", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"]


def render(root, tmp_path, *words):
    if shutil.which("go") is None or not os.path.isdir(GO_LIBRARIES):
        pytest.skip("go and sprig are not installed: golang-go, golang-github-masterminds-sprig-dev")
    env = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "", "GOCACHE": str(tmp_path)}
    program = root / "packaging/helm/render/main.go"
    command = ["go", "run", str(program), str(root / "packaging/helm/disque"), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", RENDERED)
def test_the_manifests_are_those_of_the_chart(root, tmp_path, name):
    values = [str(root / RENDERED[name])] if RENDERED[name] else []
    expected = (root / f"packaging/helm/rendered/{name}.yaml").read_text(encoding="utf-8")
    assert render(root, tmp_path, *values) == expected


def test_nodes_are_drained_before_the_chart_takes_them_away(root, tmp_path):
    text = render(root, tmp_path, "", "5")
    [job] = [found for found in yaml.safe_load_all(text) if found["kind"] == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    commands = [one["command"] for one in job["spec"]["template"]["spec"]["containers"]]
    assert [words[:2] for words in commands] == [["disque-cluster", "remove-node"]] * 2
    assert [words[2].partition(".")[0] for words in commands] == ["disque-3", "disque-4"]


def test_probes_of_the_gateway_follow_its_settings(root, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text("gateway: {enabled: true, config: {base-path: /mq, tls-cert: /etc/disque/tls.pem}}")
    [pod] = [
        found["spec"]["template"]["spec"]
        for found in yaml.safe_load_all(render(root, tmp_path, str(values)))
        if found["kind"] == "Deployment"
    ]
    probes = [pod["containers"][0][name]["httpGet"] for name in ("readinessProbe", "livenessProbe")]
    assert [(probe["path"], probe["scheme"]) for probe in probes] == [("/mq/readyz", "HTTPS"), ("/mq/livez", "HTTPS")]


@pytest.mark.parametrize("name", RENDERED)
def test_kubernetes_takes_the_manifests(root, name):
    """The test uses Kubernetes's schemas, which don't include resources of operators."""
    validate = pytest.importorskip("kubernetes_validate")
    for found in manifests(root, name).values():
        if found["apiVersion"].partition("/")[0] not in ("monitoring.coreos.com", "keda.sh"):
            validate.validate(found, validate.latest_version(), strict=True)


def test_the_chart_has_the_version_of_the_project(chart, root):
    assert read_yaml(chart / "Chart.yaml")["appVersion"] == __version__
    changes = (root / "packaging/debian/changelog").read_text(encoding="utf-8")
    assert changes.startswith(f"disque-py ({__version__})")


# Units and the Debian package.


def test_the_unit_starts_what_the_guide_installs(root, tmp_path):
    unit = (root / "packaging/systemd/disque-server@.service").read_text(encoding="utf-8")
    guide = (root / "docs/operations.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ExecStart(?:Pre)?=(\S+) (.+)$", unit, re.MULTILINE)
    assert {path for path, _ in commands} == set(re.findall(r"^\$ (/\S+/disque-server)", guide, re.MULTILINE))
    words = commands[-1][1].replace("/var/lib/disque/%i", str(tmp_path)).split()
    (tmp_path / "mail.conf").touch()
    assert load([str(tmp_path / "mail.conf"), *words[1:]], {}).settings.supervised == "systemd"


@pytest.mark.parametrize("name", ["disque-server@", "disque-gateway", "disque-exporter"])
def test_systemd_takes_the_unit(root, tmp_path, name):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (root / f"packaging/systemd/{name}.service").read_text(encoding="utf-8")
    unit = tmp_path / f"{name.replace('@', '@mail')}.service"
    unit.write_text(re.sub(r"/opt/disque/bin/\S+", "/bin/true", text), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert name not in done.stderr


@pytest.mark.parametrize("name", ["disque-server@", "disque-gateway", "disque-exporter"])
def test_units_name_their_documentation(root, name):
    """Lintian requires it."""
    assert (
        "\nDocumentation=file:///usr/share/doc/disque-py\n" in (root / f"packaging/systemd/{name}.service").read_text()
    )


def test_the_debian_package_has_every_program_but_those_of_spark(root):
    rules = (root / "packaging/debian/rules").read_text(encoding="utf-8")
    named = {f"disque-{word}" for word in re.findall(r"^PROGRAMS = (.+)$", rules, re.MULTILINE)[0].split()}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert named == {name for name, target in project["scripts"].items() if ".spark." not in target}
    units = set(re.findall(r"^UNITS = (.+)$", rules, re.MULTILINE)[0].split())
    assert units == {path.stem for path in (root / "packaging/systemd").glob("*.service")}


@pytest.mark.parametrize("script", ["packaging/debian/build.sh", "packaging/wheels/build.sh"])
def test_scripts_are_programs_without_slips(root, script):
    path = root / script
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)
    named = re.findall(r"^cp -r (.+?) \\?\n(?:\s+)?", path.read_text(encoding="utf-8"), re.MULTILINE)
    for word in (word for line in named for word in shlex.split(line)):
        assert word.startswith("packaging/") or (root / word).exists(), word


# The Python package.


def test_the_description_of_the_package_has_classifiers_and_promises_no_home(root):
    """A link to a name that the project does not own could become the page of another owner."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "urls" not in project
    supported = {word.rpartition(" ")[2] for word in project["classifiers"] if re.search(r":: 3\.\d+$", word)}
    tags = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]["build"]
    assert {f"cp{word.replace('.', '')}-*" for word in supported} == set(tags)


def test_the_package_index_can_show_the_readme(root):
    renderer = pytest.importorskip("readme_renderer.markdown")
    assert renderer.render((root / "README.md").read_text(encoding="utf-8"))


def test_a_machine_without_uvloop_can_install_the_client_library(root):
    """uvloop does not exist for Windows."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [uvloop] = [word for word in project["dependencies"] if word.startswith("uvloop")]
    assert uvloop.endswith("; sys_platform != 'win32'")
