// The part of Tephra 0.16's Thrift service that we call. What counts on the wire are
// the names of the calls, the numbers of the fields and their types.

struct Snapshot {
  1: i64 transactionId
  2: i64 readPointer
  3: list<i64> invalids
  4: list<i64> inProgress
  5: i64 firstShort
  6: i32 type
  7: i64 writePointer
  8: list<i64> checkpointWritePointers
  9: i32 visibilityLevel
}

struct Answer {
  1: bool value
}

exception Conflict {
  1: i64 transactionId
  2: string conflictingKey
  3: string conflictingClient
}

exception NotInProgress {
  1: string message
}

exception TruncateTooLate {
  1: string message
}

exception Other {
  1: string message
  2: string originalExceptionClass
}

service Tephra {
  Snapshot startShortClientId(1: string clientId) throws (1: Other other)
  Snapshot startShortWithClientIdAndTimeOut(1: string clientId, 2: i32 timeout)
    throws (1: Other other)
  Snapshot startLongClientId(1: string clientId) throws (1: Other other)
  void canCommitOrThrow(1: i64 tx, 2: set<binary> changes)
    throws (1: NotInProgress ended, 2: Conflict conflict, 3: Other other)
  void commitOrThrow(1: i64 txId, 2: i64 writePointer)
    throws (1: NotInProgress ended, 2: Conflict conflict, 3: Other other)
  void abortTx(1: Snapshot tx)
  bool invalidateTx(1: i64 tx)
  Snapshot checkpoint(1: Snapshot tx) throws (1: NotInProgress ended)
  Answer truncateInvalidTx(1: set<i64> pointers)
  Answer truncateInvalidTxBefore(1: i64 time) throws (1: TruncateTooLate late)
  i32 invalidTxSize()
  string status()
}
