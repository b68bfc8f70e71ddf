"""Hypothesis strategies for transactions."""

from hypothesis import strategies as st

from coordinator.transaction import Transaction, TransactionType, VisibilityLevel

pointers = st.integers(min_value=1, max_value=2**63 - 1)
few_pointers = st.lists(pointers, max_size=6, unique=True)

transactions = st.builds(
    Transaction,
    transaction_id=pointers,
    read_pointer=st.integers(min_value=0, max_value=2**63 - 1),
    write_pointer=pointers,
    invalids=few_pointers,
    in_progress=few_pointers,
    first_short_in_progress=pointers,
    type=st.sampled_from(TransactionType),
    checkpoint_write_pointers=few_pointers,
    visibility_level=st.sampled_from(VisibilityLevel),
)
