"""Accounts as an operator sees them: what each one keeps, and the erasure of a whole account.

`list_accounts` counts namespaces, memories and bytes. `erase_account` erases all namespaces of an account with the steps of
`relayer.log.erasure.namespaces`. Both need only the relayer key, so an operator can erase an account whose owner has lost
the root secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relayer.access.usage import CountedUsage, count_usage
from relayer.domain.namespace import PointerState
from relayer.errors import RelayerError
from relayer.log.erasure.namespaces import NamespaceEraser, namespace_report
from relayer.log.erasure.reports import ErasureReports, Stage
from relayer.log.objects import LogPorts
from relayer.operator.catalogue import Catalogue, Finding, Listed, Progress, unseen


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """An account and what it keeps in the store."""

    account: str
    counted: CountedUsage


async def list_accounts(
    ports: LogPorts, accounts: Sequence[str], progress: Progress = unseen
) -> list[AccountUsage]:
    """Count the usage of accounts, in the given order.

    Raises:
        CorruptNamespace: a pointer cannot be decrypted at its key.
        StoreError: the store does not respond.
    """
    return [AccountUsage(account, await count_usage(ports, account)) for account in progress(accounts)]


@dataclass(frozen=True, slots=True)
class AccountErasure:
    """The result of an erasure of an account.

    Attributes:
        account: its id.
        namespaces: those that are erased now, or would be erased by a run that applies the erasure.
        confirmed: how many of them have no object left in the store.
        objects: the number of objects that were deleted.
        findings: namespaces that could not be erased, with the reason.
    """

    account: str
    namespaces: tuple[Listed, ...]
    confirmed: int = 0
    objects: int = 0
    findings: tuple[Finding, ...] = ()


async def erase_account(
    ports: LogPorts, catalogue: Catalogue, account: str, *, apply: bool, progress: Progress = unseen
) -> AccountErasure:
    """Erase all namespaces of an account; calling this again continues after an interruption.

    The account's object stays, so that its revoked keys stay revoked. A namespace that cannot be erased does not stop the
    erasure of the others.

    Args:
        ports: the store and its keys.
        catalogue: the store's catalogue.
        account: the account's id.
        apply: whether to erase; False returns what would be erased.
        progress: shows the progress.
    """
    own = [listed for listed in catalogue.namespaces if listed.account == account]
    if not apply:
        return AccountErasure(account, tuple(item for item in own if not _is_erased(item)))
    erased, findings, confirmed, objects = list[Listed](), list[Finding](), 0, 0
    reports, eraser = ErasureReports(ports), NamespaceEraser(ports)
    for listed in progress(own):
        try:
            if _is_erased(listed):
                seen = await reports.find(account, listed.incarnation)
            else:
                seen = await reports.begin(namespace_report(account, listed.pointer, ports.clock.now_ms()))
            if seen is None:
                continue  # it was erased long ago, and its report is gone
            before = seen.report.destroyed
            seen = await eraser.run(seen)
        except RelayerError as error:
            findings.append(Finding.from_error(error, listed.key, "run this command again"))
            continue
        erased.append(listed)
        objects += seen.report.destroyed - before
        confirmed += seen.report.stage is Stage.CONFIRMED
    return AccountErasure(account, tuple(erased), confirmed, objects, tuple(findings))


def _is_erased(listed: Listed) -> bool:
    return listed.pointer.state is PointerState.ERASED
