package trivet

// LogKey identifies one attempt of one action within a run. An action that an agent began under one epoch and another
// agent repeats under a later one has a log for each.
type LogKey struct {
	Action  string `json:"action"`  // its name in the workflow
	Epoch   int64  `json:"epoch"`   // under which the agent held the run
	Attempt int    `json:"attempt"` // from 1
}

// LogPiece is a part of the log of one attempt of one action. Logs are sent as one JSON object per line. A piece
// without an action marks the end, to distinguish it from a broken connection.
type LogPiece struct {
	LogKey
	// Offset is where the text begins in the log, Next where it ends, in bytes.
	Offset int64  `json:"offset"`
	Next   int64  `json:"next"` // where the text ends in the log
	Text   string `json:"text"` // a part of the log
	// Missing lists the heads that are unreachable from here on, in a piece without text whose action is [LogMark]:
	// what only they have is left out. An empty list means that all are reachable again.
	Missing []string `json:"missing,omitempty"`
}

// LogConsole is the action of the log of what the machine wrote to its serial console. Each head that collected it has
// an attempt of its own.
const LogConsole = "console"

// LogMark is the action of a piece that belongs to no action.
const LogMark = "*"
