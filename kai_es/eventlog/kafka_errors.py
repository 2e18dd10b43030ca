"""What each of kafka-python's errors means to a caller of the log."""

import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from kafka import errors

from kai_es.ports.errors import ConfigError, CorruptLogError, FencedError, UnavailableError


class Meaning(enum.Enum):
    """Kinds of errors."""

    AWAY = enum.auto()
    STORAGE = enum.auto()
    DENIED = enum.auto()
    SETUP = enum.auto()
    FENCED = enum.auto()
    CORRUPT = enum.auto()
    OURS = enum.auto()


_NAMES: Final[Mapping[Meaning, str]] = {
    Meaning.AWAY: """
        KafkaError RetriableError InvalidMetadataError Cancelled CommitFailedError
        KafkaConnectionError KafkaProtocolError CorrelationIdError InvalidReceiveError
        KafkaTimeoutError MetadataEmptyBrokerList NodeNotReadyError UnknownBrokerIdError
        QuotaViolationError StaleMetadata TooManyInFlightRequests BrokerResponseError UnknownError
        UnknownTopicOrPartitionError InvalidFetchRequestError LeaderNotAvailableError
        NotLeaderForPartitionError RequestTimedOutError BrokerNotAvailableError
        ReplicaNotAvailableError StaleControllerEpochError NetworkExceptionError
        CoordinatorLoadInProgressError CoordinatorNotAvailableError NotCoordinatorError
        NotEnoughReplicasError NotEnoughReplicasAfterAppendError IllegalGenerationError
        UnknownMemberIdError RebalanceInProgressError NotControllerError ConcurrentTransactionsError
        OperationNotAttemptedError ReassignmentInProgressError FetchSessionIdNotFoundError
        InvalidFetchSessionEpochError ListenerNotFoundError FencedLeaderEpochError
        UnknownLeaderEpochError StaleBrokerEpochError OffsetNotAvailableError MemberIdRequiredError
        PreferredLeaderNotAvailableError GroupMaxSizeReachedError FencedInstanceIdError
        EligibleLeadersNotAvailableError ElectionNotNeededError NoReassignmentInProgressError
        UnstableOffsetCommitError ThrottlingQuotaExceededError UnknownTopicIdError
        InconsistentTopicIdError FetchSessionTopicIdError IneligibleReplicaError
        NewLeaderElectedError FencedMemberEpochError UnreleasedInstanceIdError StaleMemberEpochError
        UnknownControllerIdError BrokerIdNotRegisteredError DuplicateBrokerRegistrationError
        InvalidRegistrationError ShareSessionNotFoundError InvalidShareSessionEpochError
        FencedStateEpochError SnapshotNotFoundError ResourceNotFoundError GroupIdNotFoundError
        NonEmptyGroupError GroupSubscribedToTopicError
    """,
    Meaning.STORAGE: "KafkaStorageError LogDirNotFoundError OffsetMovedToTieredStorageError",
    Meaning.DENIED: """
        AuthorizationError TopicAuthorizationFailedError GroupAuthorizationFailedError
        ClusterAuthorizationFailedError TransactionalIdAuthorizationFailedError
        SecurityDisabledError SaslAuthenticationFailedError UnsupportedSaslMechanismError
        IllegalSaslStateError
        DelegationTokenAuthDisabledError DelegationTokenNotFoundError
        DelegationTokenOwnerMismatchError DelegationTokenRequestNotAllowedError
        DelegationTokenAuthorizationFailedError DelegationTokenExpiredError
        InvalidPrincipalTypeError PrincipalDeserializationFailureError UnacceptableCredentialError
        PolicyViolationError
    """,
    Meaning.SETUP: """
        KafkaConfigurationError UnrecognizedBrokerVersion UnsupportedVersionError
        IncompatibleBrokerVersion UnsupportedForMessageFormatError UnsupportedCompressionTypeError
        UnsupportedCodecError InvalidReplicationFactorError InvalidReplicationAssignmentError
        InvalidPartitionsError InvalidConfigurationError InvalidSessionTimeoutError
        InvalidTransactionTimeoutError InvalidTopicError InvalidGroupIdError TopicAlreadyExistsError
        MessageSizeTooLargeError RecordListTooLargeError TopicDeletionDisabledError
        InconsistentGroupProtocolError InconsistentClusterIdError InconsistentVoterSetError
        InvalidUpdateVersionError FeatureUpdateFailedError UnsupportedAssignorError
        MismatchedEndpointTypeError UnsupportedEndpointTypeError InvalidVoterKeyError
        DuplicateVoterError VoterNotFoundError DuplicateResourceError TelemetryTooLargeError
        UnknownSubscriptionIdError
    """,
    Meaning.FENCED: """
        ProducerFencedError InvalidProducerEpochError InvalidTxnStateError
        InvalidProducerIdMappingError TransactionCoordinatorFencedError UnknownProducerIdError
        OutOfOrderSequenceNumberError DuplicateSequenceNumberError TransactionalIdNotFoundError
        TransactionAbortedError TransactionAbortableError
    """,
    Meaning.CORRUPT: """
        CorruptRecordError LogTruncationError OffsetOutOfRangeError PositionOutOfRangeError
        NoOffsetForPartitionError
    """,
    Meaning.OURS: """
        NoError IllegalArgumentError IllegalStateError OffsetMetadataTooLargeError
        InvalidRequiredAcksError InvalidCommitOffsetSizeError InvalidTimestampError
        InvalidRequestError InvalidRecordError InvalidRecordStateError
    """,
}

MEANINGS: Final[Mapping[type[Exception], Meaning]] = MappingProxyType(
    {getattr(errors, name): kind for kind, names in _NAMES.items() for name in names.split()}
)

_RAISED: Final[Mapping[Meaning, tuple[type[Exception], str]]] = {
    Meaning.AWAY: (UnavailableError, ""),
    Meaning.STORAGE: (UnavailableError, "; look at the broker's disk and log"),
    Meaning.DENIED: (UnavailableError, "; look at kai-es' credentials and rights on the broker"),
    Meaning.SETUP: (UnavailableError, "; look at the broker's version and settings"),
    Meaning.FENCED: (FencedError, ""),
    Meaning.CORRUPT: (CorruptLogError, "; restore the partition from a replica or a backup"),
    Meaning.OURS: (AssertionError, "; this is a fault of kai-es"),
}

_NO_BROKER: Final = "; is a broker there, and are the credentials and TLS settings right?"
"""kafka-python tries on until its time is over, also when the broker refuses a log-in: it drops
the answer that comes together with the end of the connection."""

LIBRARY_ERRORS: Final[tuple[type[Exception], ...]] = (
    errors.KafkaError,
    OSError,  # a socket, or a certificate file that is not there
    ValueError,  # kafka-python: unknown partition, bad setting
)


def mapped(exc: BaseException, doing: str) -> Exception:
    """The port's error for one of the library's."""
    kind = next((MEANINGS[c] for c in type(exc).__mro__ if c in MEANINGS), Meaning.AWAY)
    raised, hint = _RAISED[kind]
    if "Unable to bootstrap" in str(exc):
        what, _, where = doing.rpartition(" on ")
        return raised(f"cannot reach the broker at {where} to {what or 'use it'}{_NO_BROKER}")
    return raised(f"cannot {doing}: {str(exc) or type(exc).__name__}{hint}")


@contextmanager
def errors_mapped(doing: str) -> Iterator[None]:
    """Map what leaves the block."""
    try:
        yield
    except ConfigError:
        raise  # ours, though a ValueError
    except LIBRARY_ERRORS as exc:
        raise mapped(exc, doing) from exc
