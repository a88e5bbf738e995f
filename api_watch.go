package trivet

// The server-sent events of a watch. The data of WatchPut is the record, that of WatchDelete a [DeletedRecord], that
// of WatchError a [Problem]; the id is the store's revision.
const (
	WatchPut    = "put"
	WatchDelete = "delete"
	// WatchSynced ends the initial state of a watch that began without a revision.
	WatchSynced = "synced"
	// WatchBookmark reports that nothing else changed up to its revision. It is also the heartbeat of a watch.
	WatchBookmark = "bookmark"
	// WatchDrain reports that the head is about to stop: continue at another one.
	WatchDrain = "drain"
	// WatchError ends a watch with an error.
	WatchError = "error"
)

// MaxWatchEvent bounds one event of a watch, in bytes; the JSON of any record fits.
const MaxWatchEvent = MaxRecord + 4<<10

// DeletedRecord names a record that was deleted, or no longer matches the watch.
type DeletedRecord struct {
	Kind    Kind   `json:"kind"`
	Project string `json:"project,omitempty"` // of a record of a project
	Name    string `json:"name"`
}
