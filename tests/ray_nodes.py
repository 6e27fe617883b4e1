"""A cluster of Ray with two nodes on this machine, each with one core."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
PLAIN = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def two_nodes(**environment: str) -> Iterator[Cluster]:
    """Its second node may be killed. The processes of both have this environment, and so has what connects to them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**PLAIN, **environment}.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, Path(__file__).parents[:2])))
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        try:
            cluster.add_node(**NODE)
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster
        finally:
            cluster.shutdown()


def kill_second_node(cluster: Cluster) -> None:
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def train_fake() -> None:
    """Called in each worker: its trainings are those of `fake_spacy`."""
    from spacy_tener.workbench.runs import processes

    processes.MODULE = "fake_spacy"


FAKE = {
    "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"worker_process_setup_hook": "ray_nodes.train_fake"}})
}
