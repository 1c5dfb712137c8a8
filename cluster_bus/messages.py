"""The vocabulary of the bus: message kinds and the shape of their items.

The messages that a turn produced for a node travel as *runs*: a kind followed by its items, in the order they were
produced. A receiver takes a run as a whole, so a thousand acknowledged jobs cost one look-up of the handler. Items are
positional. A receiver ignores positions it does not know, so a newer node may say more (docs/bus.md).

Node ids are 20 bytes. A set of nodes (`NODES`) is their concatenation, sorted. Times are spans in milliseconds, never
moments of another node's clock.

Membership kinds are below 32 and never reach the core; job kinds start at 32.
"""

from __future__ import annotations

from typing import Final

# -- membership (cluster_bus/membership.py) -------------------------------------------------
HELLO: Final = 1  # First frame both ways on a link: map of fields; see handshake.py.
PROOF: Final = 2  # Second frame both ways: HMAC over both nonces and both ids.
PING: Final = 3  # (map of header fields, [gossip entries]); see heartbeat.py
PONG: Final = 4  # (the same)
MEET: Final = 5  # (the same) from a node the receiver may not know yet
FAIL_NODE: Final = 6  # (node id)

# -- jobs (disque_py/core) ---------------------------------------------------------------------
FIRST_JOB_KIND: Final = 32
# a job snapshot, flags (1: no answer wanted; 2: a new job with a key; 4: then ms until its timer, its state for users)
REPLJOB: Final = 32
GOTJOB: Final = 33  # job id: taken; (job id, 1): was here before; (job id, 2): and the sender leaves
REFUSED: Final = 34  # job id, reason (see REFUSALS): answer to REPLJOB
HOLDERS: Final = 35  # job id, NODES: the longer list of holders, to those having the job
ENQUEUE: Final = 36  # job id, delay ms: the creator keeps no copy
QUEUED: Final = 37  # job id, flags (QUEUED_*), attempt, nacks, additional deliveries, version, change number, its node
WILLQUEUE: Final = 38  # job id, attempt, change number, its node
LEASED: Final = 39  # job id, milliseconds left, attempt, version, change number, its node
SETACK: Final = 40  # job id, NODES the sender knows as holders (empty: a dummy ack), version (0: tell of it), outcome
GOTACK: Final = 41  # job id, NODES merged, 1 if the SETACK named the answering node
DELJOB: Final = 42  # job id, NODES of the finished collection; None: delete in any case (and 1: creation was aborted)
NEEDJOBS: Final = 43  # queue, count, flags (1: answers a hint; 2: no jobs of RETRY 0), priority and ctime of our best
YOURJOBS: Final = 44  # number, all numbers up to here are settled, [job snapshots]
TOOK: Final = 45  # number, answers (one byte per job: 0 taken, else a refusal)
SETTLED: Final = 46  # all numbers up to this one are settled
INTEREST: Final = 47  # queue, number of waiting clients (0: had some lately; -1: gone; -2: forget all told before)
HINT: Final = 48  # queue, length, priority and ctime of the best job, jobs given if it answers a NEEDJOBS
PAUSE: Final = 49  # queue, flags (1 in, 2 out), version ms, version node id
LEFT: Final = 50  # job id, leaver id, new holder id or b"", NODES the leaver knows, version
LEFT_OK: Final = 51  # job id, state of the job there: 0 nothing, 1 a copy, 2 its ack
OUTCOME: Final = 52  # job id: to its creator, is it decided whether this job exists?
ISKEY: Final = 53  # number, 18 characters of an id: do you know a job with this key?
KEYIS: Final = 54  # number of the question, the characters, job id or b"": last word on a key
# Jobs that one command made (disque_py/core/shared_copies.py). Nodes before bus version 5 get REPLJOB and GOTJOB.
# ids as one byte string, header of the first job, [queue, …], body, NODES, attributes
REPLMANY: Final = 63
GOTMANY: Final = 69  # the ids: all taken
OUTCOME_IS: Final = 55  # job id: it is decided; a DELJOB, if there was one, came before
SETTING: Final = 64  # queue, field, value, counter, node id: a queue setting and its version
SETTINGS_HAVE: Final = 65  # queue, digest: the sender has this state of its settings on disk
SETTINGS_DIGEST: Final = 66  # digest of all settings, occasion: 0 link up, 1 all were told, 2 news, 4 a link broke
ASKSETTINGS: Final = 67  # 0: tell me all settings
QLENGTHS: Final = 68  # queue with a maxlen, pending jobs
# Filters have kinds of their own: an older node would take them for interest in every job of the queue.
FILTER_INTEREST: Final = 70  # queue, pairs (name, value …), waiting clients (as INTEREST), those that take RETRY 0
FILTER_HINT: Final = 71  # queue, pairs, length
FILTER_NEED: Final = 72  # queue, pairs, count, flags as NEEDJOBS
# Patterns of queue names (disque_py/core/pattern_interest.py). An older node ignores them, and takes no part.
# [pattern, …], waiting clients without a filter (as INTEREST), those that take RETRY 0, clients with a filter
PATTERN_INTEREST: Final = 132
# id of a job, id of the job that took its place (ADDJOB … REPLACE, disque_py/core/replacing.py)
REPLACED: Final = 134
PATTERN_QUEUE: Final = 133  # queue: it has jobs, and matches a pattern that clients with a filter wait for
# Tasks (disque_py/core/tasks.py): work on the jobs of a queue, on all nodes.
TASK: Final = 92  # number, action (0 begin, 1 go on, 2 end), fields of the action
# number, round, offered jobs, changed, failed, outcome (0 goes on, 1 over, 2 unable), queue length, does it take jobs
TASK_STATE: Final = 93
SYNC: Final = 94  # number: say when you have handled all that I sent before
SYNCED: Final = 95  # number of the SYNC
# Questions of a client to all nodes. An older node ignores them, and is missing in the answer.
QUESTION: Final = 90  # number, topic, [word, …]: what is your share? (disque_py/core/gathering.py)
ANSWER: Final = 91  # number of the question, outcome (0 answered, 1 unable), share
# Claims (disque_py/core/voting.py). A list of voters is in core/voter_list.py, an outcome in core/grants.py.
VOTERS: Final = 110  # list of voters, the list before it or None
CLAIM: Final = 111  # number, epoch, key, holder, fence, lease ms, attempt (0: none), ms to keep it, flags (1: replaces)
CLAIM_IS: Final = 112  # number of the claim, outcome, fence and holder of the running grant, highest, attempts, ms left
# number, key, holder, fence, flags (1: the attempt does not count), ms to remember that it is done
RELEASE: Final = 113
RELEASED: Final = 114  # number of the release, 1 if the grant ended
VOTE: Final = 115  # number, epoch, ballot, its node, None: promise; or the next list: accept
VOTE_IS: Final = 116  # number of the vote, 0 yes, 1 no, 2 unable, highest ballot, its node, accepted ballot, node, list
RECALL: Final = 117  # number, epoch, page, is it for the next list: tell the grants that you gave in this epoch
# number of the request, outcome (0 a page, 1 not now, 2 begin again), floor, items, is it the end
RECALLED: Final = 118

# Deliveries under a claim (disque_py/core/exclusive.py).
FREED: Final = 119  # key: the grant that kept you from it is over here
CLAIM_ENDED: Final = 120  # job id, fence: the worker of this delivery of yours is done
ACKFENCED: Final = 121  # job id, fence, attempt, result or None: a client acknowledged the delivery under this claim
CLAIM_NEWEST: Final = 122  # job id, fence, fence of the job's own key, holder: the newest claim that I know of the job

CHANGED: Final = 56  # job id, its changeable part (core/changeable.py), version (not from older nodes)
ASKCHANGED: Final = 57  # job id: tell its changeable part
ACKATTEMPT: Final = 58  # job id, attempt: a client acknowledged this delivery
ASKJOBS: Final = 59  # number, [job id, …]: what do you have of these jobs?
JOBSARE: Final = 60  # number of the question, one byte per job (core/asking.py)
DOJOBS: Final = 61  # number, action, [job id, …], [word, …]: a client wants this done to jobs that you hold
DIDJOBS: Final = 62  # number of the request, one byte per job: 1 done, 0 not

# Lost copies (disque_py/core/repair_turns.py; TAKETURN: repair.py).
HAVE: Final = (
    80  # number, NODES the sender knows as holders, [job id, …]: take these holders over, and say what you have
)
HAVEARE: Final = (
    81  # number, one byte per job, NODES of each job had (b"": as asked), [(index, change number, its node) …]
)
RESTORED: Final = 82  # [job id, …]: these jobs have their copies
SHORT: Final = 83  # [job id, …]: copies of these jobs are missing, and no node can take one
TAKETURN: Final = 84  # [job id, …]: copies are missing, and you are the holder whose turn it is

# Results of jobs, and clients that wait for the ends of jobs (disque_py/core/job_waits.py).
WAITFOR: Final = 140  # number, [job id, …]: tell me the ends of these jobs; and what do you have of them?
WAITIS: Final = 141  # number of the question, one byte per job (core/job_waits.py)
JOBOVER: Final = 142  # job id, status, result or None, error or None, *1 if there may be a result*
JOBHAS: Final = 143  # job id, one byte as in WAITIS: that changed
NOWAIT: Final = 144  # [job id, …]: the sender waits for these no more
RESULT: Final = 145  # job id, result, version and node of its ack (0, b"": of a node that does not know the job)
PROGRESS: Final = 146  # job id, percent, text, attempt, version
# Batches (disque_py/core/keeping.py, batch_ends.py). Entries are those of core/id_sets.py, in one byte string.
BATCHADD: Final = 147  # number (0: no answer), batch, entries: record these
BATCHGOT: Final = 148  # number of the BATCHADD: recorded
BATCHSUM: Final = 149  # batch, [digest of each part], 1 if it is an answer: tell me entries of parts that differ
BATCHFLUSH: Final = 150  # number, batch: say when I have all that you reported
BATCHFLUSHED: Final = 151  # number of the question, live jobs and all jobs of the batch that the sender knows

# Caps of queues (disque_py/core/capping.py).
CAP_FOLLOW: Final = 155  # 1: I take my slots from you, 0: no more
CAP_ASK: Final = 156  # queue, value of rate-by or None, value of max-running-by or None, slots, ms of the lease
CAP_GRANT: Final = 157  # number, queue, both values as asked, slots
CAP_SETTLE: Final = 158  # number of the grant, slots that were used or are given back
CAP_USE: Final = (
    159  # node, its run, queue, kind (0 rate, 1 running, 2 rate in all), value, slots, ms left of the last lease
)

REFUSED_PAUSED: Final = 1
REFUSED_MEMORY: Final = 2
REFUSED_LEAVING: Final = 3
REFUSED_DONE: Final = 4
REFUSED_BUSY: Final = 5
REFUSED_DISK: Final = 6
REFUSED_KEY: Final = 7

QUEUED_RELEASED: Final = 1  # By NACK or ENQUEUE: a running lease ends here and now.
QUEUED_WAITING: Final = 2  # An announcement: still waiting in our queue, nothing new.

NAMES: Final = {
    value: name
    for name, value in sorted(globals().items())
    if isinstance(value, int) and name.isupper() and not name.startswith(("FIRST_", "REFUSED_", "QUEUED_"))
}
