"""How chunks are executed: modes, delays, workers, the change of policies, and exact replay."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections import deque

import numpy as np
import pytest
from arm import arm_policy, arm_profile
from msgspec.structs import replace
from rig import Rig
from small_policy import write_small_policy

from andante.doctor.null_robot import NullRobot
from andante.runtime.command import FIELDS, Sample
from andante.runtime.contract import Trained
from andante.runtime.controller import SWAP_TICKS, Controller
from andante.runtime.errors import AndanteError, ProfileError
from andante.runtime.loop import RealtimeLoop, _needed_ticks, _Timing
from andante.runtime.planner import Counters, Execution
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.states import State
from andante.runtime.worker import AsynchronousWorker, Worker
from andante.sim.robot import SimRobot

DELAYS = Trained(values=(0, 1, 2), default=0)
HORIZON = Trained(values=(2, 3), default=3)


@pytest.fixture(scope="module")
def patient_path(tmp_path_factory):
    """A policy that was trained for delays of up to two ticks."""
    path = tmp_path_factory.mktemp("patient") / "policy.onnx"
    return write_small_policy(path, inference_delay=DELAYS, execution_horizon=HORIZON)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("plain") / "policy.onnx")


def pendulum(path, horizon=None, **options) -> Rig:
    return Rig(load_policy(path), load_profile("pendulum"), horizon, **options)


def swing(rig, ticks, **options) -> list[float]:
    torques = []
    for i in range(ticks):
        rig.q[0] = 0.3 * np.sin(0.2 * i)
        torques.append(rig.tick(**options).tau_ff[0])
    return torques


def reference(path, ticks, horizon, delay=0, overlap=0) -> list[float]:
    """The same by the definition: chunk of tick t acts from t + d, over the tail of the one before."""
    policy, plan = load_policy(path), {}
    for start in range(0, ticks, horizon):
        policy.inputs["joint_position"][:] = 0.3 * np.sin(0.2 * start)
        chunk = policy.infer()[:, 0].copy()
        policy.commit()
        for i in range(delay, len(chunk)):
            tick, share = start + i, (i - delay + 1) / (overlap + 1)
            old = plan.get(tick)
            blended = old is not None and share < 1.0
            plan[tick] = np.float32(old + (chunk[i] - old) * np.float32(share)) if blended else chunk[i]
    return [float(plan.get(tick, 0.0)) for tick in range(ticks)]


@pytest.mark.parametrize(("horizon", "mode"), [(5, "open_loop"), (3, "receding"), (1, "receding")])
def test_mode_follows_from_the_horizon(path, horizon, mode):
    rig = pendulum(path, horizon).go(State.READY)
    assert rig.controller.planner.execution.mode == mode
    assert swing(rig, 20) == reference(path, 20, horizon)


def test_blend_takes_over_from_the_old_tail_linearly(path):
    rig = pendulum(path, 2, mode="blend", overlap=3).go(State.READY)
    np.testing.assert_allclose(swing(rig, 20), reference(path, 20, 2, overlap=3), rtol=1e-5)
    assert pendulum(path, 2, mode="blend").controller.planner.execution.overlap == 1  # a third of five


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "blend"}, r"mode 'blend' is not possible: .* execution horizon of 5 and chunks of 5"),
        ({"mode": "receding"}, r"mode 'receding' is not possible"),
        ({"mode": "open_loop", "horizon": 3}, r"mode 'open_loop' is not possible: .* horizon of 3"),
        ({"mode": "prefix"}, r"mode 'prefix' is not possible: the policy was trained for mode 'open_loop'"),
        ({"mode": "blend", "horizon": 3, "overlap": 3}, r"'blend': an overlap of at most 2 ticks, found 3"),
        ({"overlap": 1}, r"'open_loop': an overlap of at most 0 ticks, found 1"),
        ({"inference_delay": 1}, r"inference delay 1 was not trained; trained: \[0\]"),
    ],
)
def test_impossible_execution_is_refused(path, options, message):
    with pytest.raises(AndanteError, match=message):
        pendulum(path, **options)


@pytest.mark.parametrize("delay", [1, 2])
def test_answers_are_taken_at_exactly_the_delay_that_is_given(patient_path, delay):
    rig = pendulum(patient_path, inference_delay=delay).go(State.READY)
    found = swing(rig, 30)
    assert found[delay:] == reference(patient_path, 30, 3, delay)[delay:]
    counters = rig.controller.counters
    assert (counters.resting, counters.starved) == (delay, 0)


@pytest.fixture
def waiting_arm(tmp_path):
    """An arm whose policy answers after two ticks, and whose profile tolerates no starvation."""
    timing = {"inference_delay": Trained(values=(2,), default=2)}
    timing["execution_horizon"] = Trained(values=(2,), default=2)
    damping = [{"action": "damping", "gains": "damping"}]
    table = {"starvation": damping, "stale_source": [{"action": "keep", "ticks": 9}, *damping]}
    events = ("overrun", "non_finite", "limit", "e_stop")
    profile = arm_profile(tmp_path, fallback=dict.fromkeys(events, damping) | table)
    return Rig(arm_policy(tmp_path, **timing), profile)


def test_robot_rests_at_its_start_pose_until_the_first_chunk_acts(waiting_arm):
    rig = waiting_arm.go(State.READY)
    rest = rig.tick()
    for _ in range(2):
        command = rig.tick(start=True)
        np.testing.assert_array_equal(command.rows, rest.rows)
    assert rig.state is State.RUN
    assert not np.array_equal(rig.tick().q, rest.q)
    counters = rig.controller.counters
    assert (counters.resting, counters.starved, rig.controller.fault) == (2, 0, None)


def test_after_a_gap_that_resets_the_memory_the_robot_is_damped_until_the_first_chunk_may_act(waiting_arm):
    rig = waiting_arm.go(State.RUN)
    for _ in range(4):
        rig.tick()
    gap = rig.controller.contract.max_gap_ticks + 1
    # Nobody missed a chunk there: none of the ticks left out is one of starvation.
    assert [rig.tick(skip).mode for skip in (gap, 0, 0, 0)] == ["damping", "damping", "track", "track"]
    counters = rig.controller.counters
    assert (rig.state, counters.gaps, counters.resting, counters.starved) == (State.RUN, 1, 4, 0)


def test_answer_that_is_late_after_a_long_gap_is_starvation(waiting_arm):
    rig = waiting_arm.go(State.RUN)
    for _ in range(4):
        rig.tick()
    rig.tick(skip=rig.controller.contract.max_gap_ticks + 1)
    rig.sample.answered = False
    rig.tick()
    assert (rig.state, rig.controller.fault) == (State.RUN, None)
    rig.tick()
    assert rig.controller.fault == f"starvation: no chunk covers tick {rig.next - 1}"


def test_long_gap_after_which_nothing_fresh_is_there_to_decide_on_is_starvation(waiting_arm):
    rig = waiting_arm.go(State.RUN)
    for _ in range(4):
        rig.tick()
    rig.tick(skip=rig.controller.contract.max_gap_ticks + 1, age_ns=10**9)
    assert rig.controller.fault == f"starvation: no chunk covers tick {rig.next - 1}"


def test_memory_advances_when_the_answer_is_taken_and_not_before(patient_path):
    rig = pendulum(patient_path, inference_delay=2).go(State.RUN)
    initial = rig.policy.state()
    rig.tick()
    np.testing.assert_array_equal(rig.policy.state(), initial)
    rig.tick()
    assert not np.array_equal(rig.policy.state(), initial)


def test_delay_grows_to_the_least_trained_one_that_inference_keeps_and_starts_over(patient_path):
    rig = pendulum(patient_path).go(State.RUN)
    planner = rig.controller.planner
    for needed, delay in ((0, 0), (1, 1), (0, 1), (9, 2), (1, 2)):
        rig.sample.delay_ticks = needed
        for _ in range(3):
            rig.tick()
        assert planner.delay == delay
    rig.sample.delay_ticks = 0
    rig.controller.deactivate()
    rig.go(State.RUN)
    assert planner.delay == 0


def test_a_tick_without_a_chunk_is_not_asked_for_off_the_grid_where_answers_take_time(patient_path):
    rig = pendulum(patient_path, inference_delay=1).go(State.RUN)
    rig.tick()
    rig.tick()
    before, counters = rig.policy.state(), rig.controller.counters
    rig.tick(skip=1)  # the decision of tick 3 is missed; the tail plays
    assert (counters.dropped, counters.starved) == (1, 0)
    rig.tick()
    assert (counters.dropped, counters.starved) == (1, 1)
    assert (counters.decisions, counters.off_grid, rig.controller.worker.inferences) == (1, 0, 1)
    np.testing.assert_array_equal(rig.policy.state(), before)
    assert rig.state is State.RUN


def test_latency_is_judged_by_its_95th_percentile():
    durations = deque([5_000_000] * 9, maxlen=100)
    assert _needed_ticks(durations, 1_000_000) == 1  # too few
    durations += [5_000_000] * 85
    for expected in (1, 1, 1, 1, 3):
        durations.append(50_000_000)
        assert _needed_ticks(durations, 20_000_000) == expected
    durations += [1_000_000] * 100
    assert _needed_ticks(durations, 20_000_000) == 1


def test_latencies_of_a_policy_do_not_count_against_the_one_that_takes_over(path):
    policy, timing = load_policy(path), _Timing()
    timing.follow(Worker(policy))
    timing.latencies_ns.extend([10**9] * 50)
    timing.delay_ticks = 50
    worker = AsynchronousWorker(policy)
    timing.follow(worker)
    worker.close()
    assert (list(timing.latencies_ns), timing.delay_ticks) == ([], 1)


def test_tick_off_the_grid_is_evaluated_without_touching_the_memory(path):
    steady, late = pendulum(path).go(State.RUN), pendulum(path).go(State.RUN)
    for rig in (steady, late):
        for _ in range(4):
            rig.tick()
    before = late.policy.state()
    late.q[0] = 0.4
    command = late.tick(skip=1)  # the decision of tick 5 is missed, and its chunk with it
    np.testing.assert_array_equal(late.policy.state(), before)
    assert (late.controller.counters.off_grid, late.controller.counters.starved) == (1, 0)
    late.policy.inputs["joint_position"][:] = 0.4
    assert command.tau_ff[0] == late.policy.infer()[0, 0]
    late.q[0] = 0.0
    for _ in range(4):
        late.tick()
    assert late.controller.counters.decisions == 2  # at 0 and 10: on the grid


def test_asynchronous_worker_needs_a_policy_that_was_trained_to_wait(path):
    policy = load_policy(path)
    worker = AsynchronousWorker(policy)
    with pytest.raises(AndanteError, match="trained for answers within their tick"):
        Controller(policy, load_profile("pendulum"), worker=worker)
    worker.close()


@pytest.mark.realtime
def test_asynchronous_run_replays_bit_by_bit_without_its_thread(patient_path):
    policy, profile = load_policy(patient_path), load_profile("pendulum")
    worker = AsynchronousWorker(policy)
    controller = Controller(policy, profile, worker=worker)
    infer, lags_s = policy.infer, itertools.cycle([0.0, 0.03])
    record, delays = [], set()

    def slowly():
        time.sleep(next(lags_s))  # every other answer is late
        return infer()

    def keep(tick, sample, command, *_):
        record.append((tick, copy.deepcopy(sample), command.copy(), controller.state))
        delays.add(controller.planner.delay)

    loop = RealtimeLoop(controller, NullRobot(policy.contract, profile), observers=[keep])
    controller.warmup()
    policy.infer = slowly
    report = loop.run(0.5)
    worker.close()
    assert report.decisions > 0 and delays & {1, 2}
    assert {sample.answered for _, sample, _, _ in record} == {False, True}
    replay = Controller(load_policy(patient_path), profile)
    replay.warmup()
    replay.activate()
    for tick, sample, command, state in record:
        again = replay.tick(tick, sample)
        assert (replay.state, again.mode) == (state, command.mode)
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(again, field), getattr(command, field))
    assert replay.counters == controller.counters


class Stuck:
    """Makes a real session's inference wait until it is let go."""

    def __init__(self, policy):
        self.policy, self.infer = policy, policy.infer
        self.begun, self.go = threading.Event(), threading.Event()
        policy.infer = self.wait

    def wait(self):
        with self.policy._lock:
            self.begun.set()
            self.go.wait(30)
        return self.infer()


def test_inference_that_never_answers_starves_and_its_late_answer_is_refused(patient_path):
    policy = load_policy(patient_path)
    worker = AsynchronousWorker(policy)
    rig = Rig(policy, load_profile("pendulum"), worker=worker).go(State.READY)
    stuck = Stuck(policy)
    rig.sample.answered, rig.sample.delay_ticks = False, 1
    modes = [rig.tick().mode]
    stuck.begun.wait(30)
    modes += [rig.tick().mode for _ in range(11)]
    assert rig.controller.fault.startswith("starvation: no chunk covers tick ")
    assert modes == ["damping"] * 12
    rig.controller.clear()
    rig.go(State.RUN)  # while the thread still reads the memory
    assert rig.controller.counters.dropped == 1
    with pytest.raises(AndanteError, match="cannot warm up"):
        rig.controller.deactivate()
        rig.controller.warmup()
    stuck.go.set()
    while not worker.ready:
        time.sleep(0.001)
    rig.go(State.READY)
    rig.sample.answered = True
    rig.tick()
    assert rig.controller.counters.refused == 1
    np.testing.assert_array_equal(policy.state(), np.full(8, 0.1, np.float32))
    worker.close()


class Held(Worker):
    """A thread's inference that goes on until it is let go, without the thread."""

    immediate = False
    held = False

    def _begin(self):
        super()._begin()
        self._done = not self.held

    def let_go(self):
        self.held, self._done = False, True


def in_flight_over_a_restart(path, q) -> Rig:
    """A policy that runs again while an inference of the run before goes on, with the joint at `q` then."""
    policy = load_policy(path)
    rig = Rig(policy, load_profile("pendulum"), worker=Held(policy), inference_delay=1).go(State.RUN)
    swing(rig, 8)
    assert not np.array_equal(policy.state(), np.full(8, 0.1, np.float32))
    rig.controller.worker.held, rig.q[0] = True, q
    for _ in range(3):  # one of them is a decision
        rig.tick()
    assert not rig.controller.worker.idle
    rig.sample.answered, rig.q[0] = False, 0.0
    rig.tick(e_stop="operator")
    rig.controller.clear()
    return rig.go(State.RUN)


def test_memory_begins_at_its_initial_values_though_the_inference_before_ends_in_the_new_run(patient_path):
    rig, fresh = in_flight_over_a_restart(patient_path, 0.2), pendulum(patient_path, inference_delay=1)
    assert rig.controller.counters.dropped == 1
    rig.controller.worker.let_go()
    rig.sample.answered = True
    rig.tick()
    assert rig.controller.counters.refused == 1
    np.testing.assert_array_equal(rig.policy.state(), np.full(8, 0.1, np.float32))
    rig.tick()  # then comes the next decision of the grid, which is the first one
    torques = swing(rig, 10)
    fresh.go(State.READY)
    assert torques[1:] == swing(fresh, 10)[1:] and any(torques)


def test_inference_of_the_run_before_may_end_in_an_error(patient_path):
    rig = in_flight_over_a_restart(patient_path, 100.0)  # finite, but the network overflows
    rig.controller.worker.let_go()
    rig.sample.answered = True
    for _ in range(9):
        rig.tick()
    assert (rig.state, rig.controller.fault, rig.controller.counters.refused) == (State.RUN, None, 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_inference_that_raises_is_a_fault_with_its_reason(patient_path, asynchronous):
    policy = load_policy(patient_path)
    worker = AsynchronousWorker(policy) if asynchronous else None
    rig = Rig(policy, load_profile("pendulum"), worker=worker, inference_delay=1).go(State.READY)

    def fail():
        raise ValueError("bad\nweights")

    policy.infer = fail
    rig.tick()
    while not rig.controller.worker.ready:
        time.sleep(0.001)
    rig.tick()
    assert rig.controller.fault == r"non_finite: the policy failed: ValueError('bad\nweights')"
    if worker is not None:
        worker.close()


def test_policy_in_use_by_a_thread_is_closed_to_all_others(path):
    policy = load_policy(path)
    policy._lock.acquire()
    for method in (policy.infer, policy.commit, policy.reset):
        with pytest.raises(RuntimeError, match="in use by another thread"):
            method()
    policy._lock.release()
    policy.infer()


def test_second_request_before_the_answer_is_refused(patient_path):
    policy = load_policy(patient_path)
    stuck, worker = Stuck(policy), AsynchronousWorker(policy)
    worker.request(0, 0)
    with pytest.raises(RuntimeError, match="while another one is in flight"):
        worker.request(1, 0)
    stuck.go.set()


def test_swap_happens_at_a_decision_and_gradually(path, tmp_path):
    rig = pendulum(path).go(State.RUN)
    other = write_small_policy(tmp_path / "other.onnx", seed=5)
    old = swing(rig, 2)
    rig.controller.swap(load_policy(other))
    old += swing(rig, 2)
    assert rig.policy.digest == load_policy(path).digest
    rig.q[0] = 0.2
    found = [rig.tick().tau_ff[0] for _ in range(9)]
    assert rig.policy.digest == load_policy(other).digest
    new = load_policy(other)
    new.inputs["joint_position"][:] = 0.2
    wanted = []
    for _ in range(2):
        wanted += new.infer()[:, 0].astype(float).tolist()
        new.commit()
    for i in range(9):
        share = max(0.0, (SWAP_TICKS - i) / (SWAP_TICKS + 1))
        assert found[i] == pytest.approx(share * old[-1] + (1 - share) * wanted[i], abs=1e-6)
    assert rig.controller.counters.starved == 0


def test_swap_keeps_what_was_asked_of_the_execution(patient_path, tmp_path):
    changes = {"inference_delay": Trained(values=(0, 1, 2), default=0)}
    horizons = Trained(values=(2, 3), default=3)
    other = write_small_policy(tmp_path / "other.onnx", seed=5, execution_horizon=horizons, **changes)
    policy, new = load_policy(patient_path), load_policy(other)
    first = AsynchronousWorker(policy)
    asked = {"horizon": 2, "inference_delay": 1, "mode": "blend", "overlap": 2}
    controller = Rig(policy, load_profile("pendulum"), worker=first, **asked).controller
    controller.swap(new)
    controller.activate()
    sample = Sample.allocate(controller.profile.signals, 1)
    controller.tick(0, sample)
    assert controller.policy is new and controller.planner.execution == Execution("blend", 2, 1, 2)
    assert isinstance(controller.worker, AsynchronousWorker) and controller.worker is not first
    controller.swap(load_policy(patient_path), 3)
    controller.tick(1, sample)
    assert controller.planner.execution == Execution("blend", 3, 1, 2)
    controller.swap(load_policy(other))
    controller.tick(2, sample)
    assert controller.planner.execution == Execution("blend", 3, 1, 2)
    controller.close()


def has_ended(worker) -> bool:
    worker._thread.join(10)
    return not worker._thread.is_alive()


@pytest.fixture
def others(tmp_path):
    """Any number of other policies that were trained to wait."""

    def make():
        seed = next(seeds)
        return load_policy(
            write_small_policy(
                tmp_path / f"{seed}.onnx", seed=seed, inference_delay=DELAYS, execution_horizon=HORIZON
            )
        )

    seeds = itertools.count(20)
    return make


@pytest.fixture
def threaded(patient_path):
    """A pendulum's controller with a thread for its decisions."""
    policy = load_policy(patient_path)
    rig = Rig(policy, load_profile("pendulum"), worker=AsynchronousWorker(policy))
    yield rig
    rig.controller.close()


def test_worker_of_a_policy_that_is_in_force_no_more_is_ended(threaded, others):
    controller, first = threaded.controller, threaded.controller.worker
    controller.swap(others())
    threaded.go(State.START)
    assert controller.worker is not first
    assert has_ended(first) and controller.worker._thread.is_alive()


def test_worker_of_a_policy_that_never_came_into_force_is_ended(threaded, others, patient_path):
    controller = threaded.go(State.RUN).controller
    threaded.sample.answered = False  # no border with a first chunk of the new one
    controller.swap(others())
    threaded.tick()
    superseded = controller.next_worker
    controller.swap(others())
    waiting = controller.next_worker
    assert waiting not in (superseded, controller.worker)
    threaded.tick()
    assert has_ended(superseded) and waiting._thread.is_alive()
    spare = AsynchronousWorker(controller.policy)
    controller.swap(load_policy(patient_path), worker=spare)  # stay with the one in force
    threaded.tick()
    assert has_ended(waiting) and has_ended(spare) and not controller.swapping
    assert controller.next_worker is controller.worker and controller.worker._thread.is_alive()


def test_last_policy_asked_for_wins_even_while_another_takes_over(path, tmp_path):
    rig = pendulum(path, 1).go(State.RUN)
    first, second = rig.policy, load_policy(write_small_policy(tmp_path / "second.onnx", seed=5))
    rig.controller.swap(second)
    infer = second.infer

    def change_of_mind():  # another thread's; the first one is in force still
        second.infer = infer
        rig.controller.swap(load_policy(path))
        return infer()

    second.infer = change_of_mind
    rig.tick()
    assert rig.policy is second and rig.controller.swapping
    for _ in range(3):
        rig.tick()
    assert rig.policy.digest == first.digest and not rig.controller.swapping


def test_policy_asked_for_again_and_again_takes_over_all_the_same(threaded, tmp_path):
    controller = threaded.go(State.RUN).controller
    path = write_small_policy(tmp_path / "o.onnx", seed=20, inference_delay=DELAYS, execution_horizon=HORIZON)
    second = load_policy(path)
    for _ in range(20):
        controller.swap(load_policy(path))
        threaded.sample.answered = controller.answered
        threaded.tick()
        time.sleep(0.005)
        if controller.policy.digest == second.digest:
            break
    assert controller.policy.digest == second.digest
    assert sum(thread.name == "inference" for thread in threading.enumerate()) <= 2


def test_policy_in_force_offered_as_it_is_stays_with_its_worker_and_memory(threaded):
    controller = threaded.go(State.RUN).controller
    state, worker = controller.policy.state(), controller.worker
    assert state.any()
    spare = AsynchronousWorker(controller.policy)
    controller.swap(controller.policy, worker=spare)
    assert has_ended(spare)
    controller.swap(controller.policy, worker=worker)
    assert np.array_equal(controller.policy.state(), state)
    threaded.sample.answered = controller.answered
    threaded.tick()
    assert controller.worker is worker and worker._thread.is_alive() and not controller.swapping


def test_closed_controller_ends_every_worker_and_is_disabled(threaded, others):
    controller, workers = threaded.go(State.RUN).controller, []
    threaded.sample.answered = False
    for _ in range(3):
        workers.append(controller.next_worker)
        controller.swap(others())
        if len(workers) < 3:
            threaded.tick()
    controller.close()
    controller.close()
    assert all(map(has_ended, [*workers, controller.next_worker]))
    assert controller.state is State.DISABLED
    for begin in (controller.warmup, controller.activate):
        with pytest.raises(AndanteError, match=rf"cannot {begin.__name__} after close"):
            begin()


def test_worker_closed_amid_an_inference_ends_after_it(patient_path):
    policy = load_policy(patient_path)
    stuck, worker = Stuck(policy), AsynchronousWorker(policy)
    worker.request(0, 0)
    stuck.begun.wait(30)
    worker.close()
    assert worker._thread.is_alive()
    stuck.go.set()
    assert has_ended(worker)


def test_policy_offered_while_another_takes_over_does_not_end_what_is_in_force(path, tmp_path):
    rig = pendulum(path, 1).go(State.RUN)
    second, third = (write_small_policy(tmp_path / f"{seed}.onnx", seed=seed) for seed in (5, 6))
    second, third = load_policy(second), load_policy(third)
    closed = []

    class Noted(Worker):
        def close(self):
            closed.append(self._policy)

    rig.controller.swap(second, worker=Noted(second))
    infer = second.infer

    def offer():  # as another thread might, at the worst moment
        second.infer = infer
        rig.controller.swap(third, worker=Noted(third))
        return infer()

    second.infer = offer
    rig.tick()
    assert rig.policy is second and rig.controller.swapping and not closed
    rig.tick()
    assert rig.policy is third and closed == [second]


def test_swap_to_a_policy_that_cannot_be_executed_that_way_changes_nothing(path, patient_path):
    policy = load_policy(patient_path)
    worker = AsynchronousWorker(policy)
    controller = Rig(policy, load_profile("pendulum"), worker=worker).controller
    threads = threading.active_count()
    with pytest.raises(AndanteError, match="trained for answers within their tick: no asynchronous worker"):
        controller.swap(load_policy(path))
    assert threading.active_count() == threads
    controller.activate()
    controller.tick(0, Sample.allocate(controller.profile.signals, 1))
    assert controller.policy is policy
    worker.close()


def test_swap_to_a_policy_with_delay_keeps_the_old_one_until_the_new_one_acts(path, patient_path):
    rig = pendulum(path, 3).go(State.RUN)
    policy = load_policy(patient_path)
    rig.controller.swap(policy)
    rig.sample.delay_ticks = 2
    digests = []
    for _ in range(8):
        rig.tick()
        digests.append(rig.policy.digest == policy.digest)
    assert digests == [False] * 4 + [True] * 4  # the border is the third tick
    assert (rig.controller.counters.starved, rig.state) == (0, State.RUN)


def test_long_gap_while_a_new_policy_has_no_action_yet_begins_it_anew(path, patient_path):
    rig = pendulum(path, 3).go(State.RUN)
    policy = load_policy(patient_path)
    rig.controller.swap(policy)
    rig.sample.delay_ticks = 2
    for _ in range(3):
        rig.tick()
    found = []
    for skip in (3, 0, 0, 0, 0, 0):
        rig.tick(skip)
        found.append(rig.policy is policy)
    # The old one begins anew, too: its next border is three ticks later, and the answer two after that.
    assert found == [False] * 5 + [True]


def test_fault_in_mid_swap_leaves_nothing_of_the_old_commands(path, tmp_path):
    rig = pendulum(path).go(State.RUN)
    other = load_policy(write_small_policy(tmp_path / "other.onnx", seed=5))
    swing(rig, 4)
    rig.controller.swap(other)
    rig.tick()
    assert rig.policy is other
    rig.tick(e_stop="operator")
    rig.controller.clear()
    rig.q[0] = 0.0
    rig.go(State.READY)
    found = rig.tick().tau_ff[0]
    fresh = load_policy(tmp_path / "other.onnx")
    fresh.inputs["joint_position"][:] = 0.0
    assert found == fresh.infer()[0, 0]


def test_swap_demands_signals_as_fresh_as_the_new_policy_wants_them(path, tmp_path):
    rig = pendulum(path, 1).go(State.RUN)
    source = replace(load_policy(path).contract.sources[0], max_age_ns=1_000_000)
    rig.controller.swap(load_policy(write_small_policy(tmp_path / "o.onnx", seed=5, sources=(source,))), 1)
    rig.tick()
    rig.tick(age_ns=2_000_000)
    assert rig.controller._measured.stale == "joint_position is 2.0 ms old"


def test_commands_are_valid_for_as_long_as_the_policy_in_force_wants(tmp_path):
    paths = [write_small_policy(tmp_path / f"{gap}.onnx", seed=gap, max_gap_ticks=gap) for gap in (2, 7)]
    rig = pendulum(paths[0], 1).go(State.RUN)
    assert rig.tick().valid_for_ns == 3 * 20_000_000
    rig.controller.swap(load_policy(paths[1]))
    assert rig.tick().valid_for_ns == 8 * 20_000_000


def test_swap_to_a_policy_whose_commands_the_output_cannot_carry_is_refused(tmp_path):
    """From torques to positions: `kp` would be lost on the way to the drives."""
    damping = [{"action": "damping", "gains": "damping"}]
    events = ("stale_source", "starvation", "overrun", "non_finite", "limit", "e_stop")
    sequence = [damping[0] | {"duration_s": 0.1}]
    profile = arm_profile(
        tmp_path, fallback=dict.fromkeys(events, damping), start=sequence, stop=sequence, confirm=False
    )
    position = arm_policy(tmp_path)
    spin, lift = position.contract.actions
    torque = replace(lift, kind="effort", unit="N m", low=(-9.0,), high=(9.0,), kp=(0.0,), kd=(0.0,))
    (tmp_path / "effort").mkdir()
    rig = Rig(arm_policy(tmp_path / "effort", actions=(spin, torque)), profile)
    controller, worker = rig.controller, Worker(position)
    controller.check_output({"tau_ff", "kd"})
    rig.go(State.RUN)
    with pytest.raises(ProfileError, match=r"cannot carry dq, kp, q, which robot 'arm' needs"):
        controller.swap(position, worker=worker)
    assert not controller.swapping and controller.policy is not position
    for _ in range(10):
        assert not rig.tick().kp.any()
    controller.check_output(set(FIELDS))
    controller.swap(position, worker=worker)
    for _ in range(10):
        command = rig.tick()
    assert controller.policy is position and command.kp.any()
    controller.deactivate()


def test_swap_outside_of_run_is_at_once_and_from_the_initial_memory(path, tmp_path):
    rig = pendulum(path).go(State.READY)
    policy = load_policy(write_small_policy(tmp_path / "other.onnx", seed=5))
    rig.controller.swap(policy)
    rig.q[0] = 0.3
    rig.tick()
    assert rig.policy is policy and rig.state is State.RUN
    assert rig.controller.counters.decisions == 1


def test_policy_of_equal_digest_keeps_the_memory(path):
    rig = pendulum(path).go(State.RUN)
    swing(rig, 7)
    before, session = rig.policy.state(), rig.policy
    rig.controller.swap(load_policy(path))
    for _ in range(2):
        rig.tick()
    np.testing.assert_array_equal(rig.policy.state(), before)
    assert rig.policy is session


def test_swap_that_does_not_fit_changes_nothing(path, tmp_path):
    rig = pendulum(path).go(State.RUN)
    for changes, error, message in (
        (
            {"control_period_ns": 10_000_000},
            AndanteError,
            "a period of 10 ms cannot take over from one of 20 ms",
        ),
        ({"robot_model": "cartpole"}, ProfileError, "for robot model 'cartpole'"),
    ):
        model = changes.get("robot_model", "pendulum")
        options = {} if "robot_model" in changes else changes
        other = load_policy(write_small_policy(tmp_path / "other.onnx", model, **options))
        with pytest.raises(error, match=message):
            rig.controller.swap(other)
    swing(rig, 10)
    assert rig.policy.digest == load_policy(path).digest


def test_swap_resets_nothing_of_the_run(path, tmp_path):
    rig = Rig(arm_policy(tmp_path), arm_profile(tmp_path), 5).go(State.RUN)
    counters = rig.controller.counters
    before = counters.ticks
    (tmp_path / "b").mkdir()
    rig.controller.swap(arm_policy(tmp_path / "b", provenance={"a": "b"}))
    for _ in range(10):
        rig.tick()
    assert rig.controller.counters is counters and counters.ticks == before + 10
    rig.controller.deactivate()


def test_execution_of_a_policy_is_resolved_from_its_contract(path):
    contract = load_policy(path).contract
    assert Execution.resolve(contract) == Execution("open_loop", 5, 0, 0)
    assert Execution.resolve(contract, 3, mode="blend") == Execution("blend", 3, 0, 1)
    assert Counters().starved == 0


@pytest.mark.realtime
@pytest.mark.parametrize("old", [Worker, AsynchronousWorker])
@pytest.mark.parametrize("new", [Worker, AsynchronousWorker])
def test_a_loop_swaps_between_kinds_of_workers_without_starving(patient_path, tmp_path, old, new):
    other = write_small_policy(
        tmp_path / "other.onnx", seed=9, inference_delay=DELAYS, execution_horizon=HORIZON
    )
    first, second, profile = load_policy(patient_path), load_policy(other), load_profile("pendulum")
    workers = old(first), new(second)
    controller = Controller(first, profile, worker=workers[0])

    def observe(tick, *_):
        if tick == 60:
            controller.swap(second, worker=workers[1])

    class Paced(VirtualClock):
        def sleep_until_ns(self, deadline_ns):
            time.sleep(0.003)  # for the thread that infers
            super().sleep_until_ns(deadline_ns)

    loop = RealtimeLoop(controller, SimRobot(first.contract, profile), clock=Paced(), observers=[observe])
    report = loop.run(2.5)
    assert (report.faults, controller.policy is second, report.starved) == ((), True, 0)
    for worker in workers:
        worker.close()
