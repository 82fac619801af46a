"""Define Orbit-GRPO's settings beside TRL's, and refuse TRL's settings, datasets and arguments that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vcrt.errors import MalformedInputError, RunError, UnavailableError
from vcrt.plugins import installing_extra
from vcrt.printable import counted

try:
    from trl import GRPOConfig
except ImportError as error:
    raise UnavailableError(
        "TRL is not installed", found=str(error), remedy=installing_extra("trl", "vcrt-train")
    ) from error

#: The dataset's columns beside ``prompt``.
ORBIT, ILLEGAL = "orbit", "illegal"
#: A column of :mod:`vcrt_train.integrations.datasets`: a partial order if the orbit is not listed.
PARTIAL_ORDER = "partial_order"
#: The column of an environment's task; without it, the task is all columns except the prompt.
TASK = "task"
#: The column that names a row's environment, if there are several.
ENVIRONMENT = "environment"
LEVELS = ("token", "sequence", "trajectory")


def _setting(*, default: Any, help: str) -> Any:
    """Make a field with its text for a script's ``--help``."""
    return field(default=default, metadata={"help": help})


@dataclass
class OrbitGRPOConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's configuration, with the paper's defaults and the settings of the orbit.

    ``importance_sampling_level``: besides TRL's ``token`` (a ratio for each token) and ``sequence`` (one for each
    completion, its log divided by the number of tokens), there is the paper's ``trajectory``: one ratio for each
    completion, not normalised by length; it needs ``loss_type="grpo"``. A credited sample's ratio is the orbit's at
    ``trajectory``, and its T-th root at ``sequence`` (T tokens). At ``token``, the orbit's surplus over the sample is
    distributed equally over the tokens in which the orbit's members differ: reasoning before an answer keeps its ratio.

    ``orbit_all_orders``: a sample is credited with the mean reward of all orders of its steps, weighted by their
    probability; with more orders than ``orbit_max_members``, of a block of them. It needs an environment, and rewards
    and levels that are the paper's. With ``orbit_alpha``, the margin is then that of the orders which solve the task
    over those which do not, of failures as well.

    ``scale_rewards``: besides TRL's ``group``, ``batch`` and ``none``, there is the paper's ``leave_one_out``: reward
    minus the mean of the other rewards, which is TRL's ``none`` times G / (G - 1) for groups of G.

    With ``beta``, the KL term is TRL's, on the sampled tokens. TRL's ``use_bias_correction_kl`` weights each token's
    KL by the ratio in its loss, which is the orbit's for a credited sample. It is the default at ``token`` and
    ``sequence``, as in TRL; it is impossible at ``trajectory``, whose ratio would count once for each token.
    """

    importance_sampling_level: str = _setting(
        default="trajectory", help="token, sequence or trajectory (the paper's)."
    )
    loss_type: str = _setting(default="grpo", help="As TRL's; trajectory needs grpo.")
    scale_rewards: str = _setting(
        default="leave_one_out", help="group, batch, none or leave_one_out (the paper's)."
    )
    use_bias_correction_kl: bool | None = _setting(
        default=None,
        help="As TRL's: True by default, and False with importance_sampling_level='trajectory'.",
    )
    disable_dropout: bool = _setting(
        default=True, help="With dropout, ratios are not 1 before the first step."
    )
    orbit_alpha: float = _setting(
        default=0.1, help="Weight of the anti-diamond margin loss; 0 leaves it out."
    )
    orbit_margin: float = _setting(
        default=2.0, help="By how much the orbit's log-mass should exceed the illegal one, nats."
    )
    orbit_credit: bool = _setting(
        default=True, help="Whether a success's ratio is its orbit's; else its own, as GRPO's is."
    )
    orbit_all_orders: bool = _setting(
        default=False,
        help="With an environment: judge all orders of the steps of every sample, failures too, and credit the sample "
        "with what they would earn, each weighted by its probability.",
    )
    orbit_augmentation: float = _setting(
        default=0.0,
        help="Weight of the mean negative log-likelihood of a prompt's certified orders, with an environment of a "
        "success's (order-centric data augmentation, arXiv:2502.19907); 0 leaves it out.",
    )
    orbit_success: float = _setting(
        default=0.0,
        help="A sample with a reward above this is a success; an environment says itself what is.",
    )
    orbit_batch_size: int | None = _setting(
        default=None,
        help="Members that are scored at a time, where they are scored in rows of their own; "
        "per_device_train_batch_size by default.",
    )
    orbit_jobs: int = _setting(default=1, help="Completions that an environment judges at a time.")
    orbit_max_steps: int = _setting(
        default=10,
        help="The most steps of a completion that is certified; above 10, contexts are sampled, and certified orders "
        "may be illegal.",
    )
    orbit_max_members: int = _setting(
        default=24,
        help="The most orders of a completion that are scored, legal and illegal each; of a larger orbit, a block "
        "whose ratio is an unbiased estimate of the orbit's.",
    )
    orbit_max_tokens: int = _setting(
        default=8192,
        help="The most tokens of the legal orders of a prompt's completions together, as many of the illegal ones; "
        "each completion has an equal share.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_bias_correction_kl is None:
            self.use_bias_correction_kl = self.importance_sampling_level != "trajectory"
        for wrong, what, found, expected in self._refusals():
            if wrong:
                raise RunError(
                    what, where="OrbitGRPOConfig", found=found, expected=expected, remedy=expected
                )

    def _refusals(self) -> list[tuple[bool, str, str, str]]:
        """List (whether it occurs, what is wrong, what was found, what to set) for each impossible combination."""
        level, loss = self.importance_sampling_level, self.loss_type
        of_trajectories = level == "trajectory"
        numbers = ("orbit_jobs", "orbit_max_steps", "orbit_max_members", "orbit_max_tokens")
        return [
            (
                level not in LEVELS,
                "an importance sampling level that does not exist",
                f"importance_sampling_level={level!r}",
                f"importance_sampling_level as one of {', '.join(LEVELS)}",
            ),
            (
                of_trajectories and loss != "grpo",
                "a loss that would count a trajectory's ratio once for each of its tokens",
                f"loss_type={loss!r} with importance_sampling_level='trajectory'",
                "loss_type='grpo', or another importance_sampling_level",
            ),
            (
                of_trajectories and self.top_entropy_quantile < 1,
                "a selection of tokens, but a trajectory's ratio is not about tokens",
                f"top_entropy_quantile={self.top_entropy_quantile}",
                "top_entropy_quantile=1.0, or another importance_sampling_level",
            ),
            (
                of_trajectories and bool(self.beta and self.use_bias_correction_kl),
                "a KL of single tokens, each weighted by the ratio of a whole trajectory",
                f"beta={self.beta} and use_bias_correction_kl=True with importance_sampling_level='trajectory'",
                "use_bias_correction_kl=False, or another importance_sampling_level",
            ),
            *(
                (
                    self.orbit_all_orders and wrong,
                    "a setting that does not fit samples credited with all orders of their steps",
                    f"{found} with orbit_all_orders=True",
                    f"{expected}, or orbit_all_orders=False",
                )
                for wrong, found, expected in (
                    (
                        not of_trajectories,
                        f"importance_sampling_level={level!r}",
                        "importance_sampling_level='trajectory'",
                    ),
                    (
                        self.scale_rewards != "leave_one_out",
                        f"scale_rewards={self.scale_rewards!r}",
                        "scale_rewards='leave_one_out'",
                    ),
                    (not self.orbit_credit, "orbit_credit=False", "orbit_credit=True"),
                    (
                        self.orbit_augmentation > 0,
                        f"orbit_augmentation={self.orbit_augmentation}",
                        "orbit_augmentation=0.0",
                    ),
                    (self.delta is not None, f"delta={self.delta}", "delta=None"),
                    (bool(self.use_vllm), "use_vllm=True", "use_vllm=False"),
                )
            ),
            (
                self.off_policy_mask_threshold is not None,
                "masks of off-policy samples have no meaning for a sample that stands for its orbit",
                f"off_policy_mask_threshold={self.off_policy_mask_threshold}",
                "off_policy_mask_threshold=None",
            ),
            (
                self.scale_rewards == "leave_one_out"
                and self.multi_objective_aggregation != "sum_then_normalize",
                "a leave-one-out baseline needs one reward a sample",
                f"multi_objective_aggregation={self.multi_objective_aggregation!r}",
                "multi_objective_aggregation='sum_then_normalize', or another scale_rewards",
            ),
            (
                self.max_completion_length is None,
                "completions of any length",
                "max_completion_length=None",
                "max_completion_length as a number of tokens",
            ),
            (
                bool(self.remove_unused_columns),
                "the orbit's columns would be removed",
                "remove_unused_columns=True",
                "remove_unused_columns=False",
            ),
            *(
                self._too_small(name, 0, f"a negative weight of the {term} loss")
                for name, term in (
                    ("orbit_alpha", "margin"),
                    ("orbit_augmentation", "augmentation"),
                )
            ),
            self._too_small("orbit_batch_size", 1, "too few members at a time"),
            *(self._too_small(name, 1, "a number that is none") for name in numbers),
        ]

    def _too_small(self, name: str, least: int, what: str) -> tuple[bool, str, str, str]:
        """Return the refusal of a number below ``least``; None is not refused."""
        value = getattr(self, name)
        is_wrong = value is not None and value < least
        return is_wrong, what, f"{name}={value}", f"{name} of {least} or more"


def named_datasets(name: str, given: Any) -> dict[str, Any]:
    """Return the datasets of a trainer's argument, one or several, by their names; none if it is None."""
    if isinstance(given, Mapping):
        return {f"{name}[{key!r}]": each for key, each in given.items()}
    return {} if given is None else {name: given}


def require_weights(args: OrbitGRPOConfig, rewards: Sequence[Any]) -> None:
    """Raise :class:`RunError` unless there are as many ``reward_weights`` as rewards; the environment's is first."""
    weights = args.reward_weights
    if weights is not None and len(weights) != len(rewards):
        raise RunError(
            "the number of reward weights is not that of the rewards",
            where="OrbitGRPOConfig, reward_weights",
            found=counted(len(weights), "weight"),
            expected=f"{len(rewards)}: that of the environment's own reward first",
            remedy="put a weight for it before the others, such as 1.0",
        )


def require_own_reward(args: OrbitGRPOConfig, rewards: Sequence[Any]) -> None:
    """Raise :class:`RunError` if further rewards are asked for, of which other orders of a sample's steps have none."""
    if args.orbit_all_orders and len(rewards) > 1:
        raise RunError(
            "further rewards score only samples, but each sample is credited with all orders of its steps",
            where="OrbitGRPOConfig, orbit_all_orders",
            found=f"{counted(len(rewards) - 1, 'further reward')} in reward_funcs",
            expected="the environment's own reward alone",
            remedy="let the environment's solved() decide, or set orbit_all_orders=False",
        )


def require_supported(
    args: Any, datasets: Mapping[str, Any], kwargs: Mapping[str, Any], *, online: bool = False
) -> None:
    """Raise :class:`RunError` or :class:`MalformedInputError` unless a trainer supports these arguments.

    ``datasets`` and ``online`` are as in :func:`require_datasets`.
    """
    if not isinstance(args, OrbitGRPOConfig):
        raise RunError(
            "a configuration without the orbit's fields",
            found=type(args).__name__,
            expected="an OrbitGRPOConfig",
        )
    for name in ("tools", "environment_factory"):
        if kwargs.get(name):
            raise RunError(
                "completions with tokens that the model did not write have no orbit",
                found=name,
                remedy=f"leave {name} out",
            )
    if args.orbit_all_orders and not online:
        raise RunError(
            "no environment judges the other orders of a sample's steps",
            where="OrbitGRPOConfig",
            found="orbit_all_orders=True without an environment",
            expected="the argument environment of OrbitGRPOTrainer",
            remedy="give the environment, or set orbit_all_orders=False",
        )
    require_datasets(args, datasets, online=online)


def require_datasets(args: OrbitGRPOConfig, datasets: Mapping[str, Any], *, online: bool) -> None:
    """Raise :class:`RunError` or :class:`MalformedInputError` for datasets that are unfit for training or evaluation.

    ``datasets`` come from :func:`named_datasets`; with ``online`` orbits, of completions, they need no orbit columns.
    """
    for name, dataset in datasets.items():
        columns = getattr(dataset, "column_names", None)
        if images := {"image", "images"}.intersection(columns or ()):
            raise RunError(
                "orbits of completions to images are not supported",
                where=name,
                found=f"a column {', '.join(sorted(images))}",
                expected="prompts of text alone",
                remedy="remove the column",
            )
        if not online:
            _require_columns(args, name, dataset, columns)


def _require_columns(
    args: OrbitGRPOConfig, where: str, dataset: Any, columns: Sequence[str] | None
) -> None:
    needed = [ORBIT, ILLEGAL] if args.orbit_alpha else [ORBIT]
    missing = [name for name in needed if columns is not None and name not in columns]
    if missing:
        raise MalformedInputError(
            "the dataset lacks a column",
            where=where,
            found=", ".join(columns or ()),
            expected=", ".join(needed),
            remedy="add the certified orbits, see vcrt_train.integrations.datasets"
            + (
                "; or set orbit_alpha=0 to train without illegal ones" if ILLEGAL in missing else ""
            ),
        )
    # The rows of a stream are checked when they arrive.
    if PARTIAL_ORDER in (columns or ()) and hasattr(dataset, "__len__"):
        require_listed(dataset.select_columns([ORBIT, PARTIAL_ORDER]), where)


def require_listed(rows: Any, where: str) -> None:
    """Raise :class:`RunError` for records that ``vcrt export`` wrote without their orbits."""
    unlisted = sum(row.get(ORBIT) is None and row.get(PARTIAL_ORDER) is not None for row in rows)
    if unlisted:
        raise RunError(
            "orbits of so many operations are not listed, so that no completion can be credited with them",
            where=where,
            found=f"partial orders in place of an orbit in {unlisted} of {counted(len(rows), 'record')}",
            expected="records of four operations at most",
            remedy="train on them with `vcrt train`, or with TRL's own GRPOTrainer and certified_reward",
        )
