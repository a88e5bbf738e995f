package trivet

// A machine's serial console is opened at any head, which opens it at the machine's BMC or finds the head that has it
// open, and is then read and written in requests of their own: each goes to any head.

// MaxConsoleInput bounds the text of one [ConsoleInput], in bytes.
const MaxConsoleInput = 4 << 10

// ConsoleRequest opens the console of a machine.
type ConsoleRequest struct {
	// Take ends the session of another program that has the console at the BMC. Clients of Trivet share one.
	Take bool `json:"take,omitempty"`
	// Previous is the session that the client had. Where its head is lost, what that one left at the BMC is ended.
	Previous string `json:"previous,omitempty"`
}

// ConsoleSession is an open console. It ends a while after the last read.
type ConsoleSession struct {
	Session string `json:"session"` // identifies it in the requests that read and write it
	// Offset is where the text of the machine ends at present, in bytes since the console was opened.
	Offset int64  `json:"offset"`
	Head   string `json:"head"` // the head that talks to the BMC
}

// ConsoleText is what a machine wrote to its console, with control characters.
type ConsoleText struct {
	Text []byte `json:"text,omitempty"` // from Next of the read before, or later
	Next int64  `json:"next"`           // where the text ends, for the next read
	// Missed is how many bytes before the text are lost, as the client read too late.
	Missed int64 `json:"missed,omitempty"`
	// Ended is why the console has ended; empty: it has not.
	Ended string `json:"ended,omitempty"`
}

// ConsoleInput is what a person types.
type ConsoleInput struct {
	Session string `json:"session"`         // as the response to the request has it
	Text    []byte `json:"text,omitempty"`  // what is sent to the machine, control characters included
	Break   bool   `json:"break,omitempty"` // a break, after the text
}
