package bmctest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Log is the event log of a simulated Redfish service. Services differ in how they list one.
type Log struct {
	Entries     []LogEntry // the oldest first
	Now         time.Time  // its clock
	Page        int        // entries that it lists at once; 0: all
	NewestFirst bool
	Links       bool // it lists links instead of the entries
	Manager     bool // it is the manager's, and the system has only a log of dumps
}

// LogEntry is an entry of a Log.
type LogEntry struct {
	Created           time.Time // zero: there is none
	Severity, Message string
}

// LogPath is the path of a log that is not the manager's.
const LogPath = SystemPath + "/LogServices/EventLog"

// SetLog gives the service a log, before its first request.
func (s *Service) SetLog(l Log) {
	path, dumps := LogPath, SystemPath+"/LogServices/Dump"
	if l.Manager {
		path = managerPath + "/LogServices/SEL"
	}
	s.log = map[string]any{"LogServices": odata(SystemPath + "/LogServices")}
	s.managerLog = map[string]any{"LogServices": odata(managerPath + "/LogServices")}
	logs := map[bool][]any{true: {odata(dumps)}, false: {odata(dumps), odata(path)}}[l.Manager]
	s.resource(SystemPath+"/LogServices", map[string]any{"Members": logs})
	s.resource(dumps, map[string]any{"LogEntryType": "OEM", "Entries": odata(dumps + "/Entries")})
	s.resource(managerPath+"/LogServices", map[string]any{"Members": []any{odata(path)}})
	s.resource(path, map[string]any{"DateTime": l.Now.Format(time.RFC3339), "Entries": odata(path + "/Entries")})
	var entries []map[string]any
	for i, e := range l.Entries {
		id := path + "/Entries/" + strconv.Itoa(i)
		entry := map[string]any{"@odata.id": id, "Severity": e.Severity, "Message": e.Message}
		if !e.Created.IsZero() {
			entry["Created"] = e.Created.Format(time.RFC3339)
		}
		s.resource(id, entry)
		if l.Links {
			entry = map[string]any{"@odata.id": id}
		}
		entries = append(entries, entry)
	}
	if l.NewestFirst {
		slices.Reverse(entries)
	}
	s.mux.HandleFunc("GET "+path+"/Entries", s.needLogin(func(w http.ResponseWriter, r *http.Request) {
		skip, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
		from := min(skip, len(entries))
		page := entries[from:]
		body := map[string]any{"Members@odata.count": len(entries)}
		if l.Page > 0 && len(page) > l.Page {
			page = page[:l.Page]
			body["Members@odata.nextLink"] = path + "/Entries?$skip=" + strconv.Itoa(from+l.Page)
		}
		body["Members"] = append([]map[string]any{}, page...)
		reply(w, body)
	}))
}

// resource adds a resource that does not change.
func (s *Service) resource(path string, body map[string]any) {
	s.mux.HandleFunc("GET "+path, s.needLogin(func(w http.ResponseWriter, _ *http.Request) { reply(w, body) }))
}
