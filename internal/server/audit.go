package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/syslog"
	"os"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/wait"
)

// AuditSyslog is the value of Config.Audit for syslog instead of a file.
const AuditSyslog = "syslog"

// auditLine returns an entry of the audit log as a line of JSON.
func auditLine(cold store.ColdEntry) ([]byte, error) {
	var e trivet.Audit
	err := cold.Err
	if err == nil {
		err = json.Unmarshal(cold.Doc, &e)
	}
	if err != nil {
		return nil, err
	}
	e.ID = cold.ID
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err = enc.Encode(e)
	return line.Bytes(), err
}

// openAudit returns the writer of the lines of the audit log. A file is opened for each line, so that it may be moved
// away at any time.
func openAudit(to string) (write func(line []byte) error, err error) {
	if to == AuditSyslog {
		w, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_INFO, "trivet")
		if err != nil {
			return nil, err
		}
		return func(line []byte) error { return w.Info(string(bytes.TrimSpace(line))) }, nil
	}
	write = func(line []byte) error {
		f, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(line)
		if failed := f.Close(); err == nil {
			err = failed
		}
		return err
	}
	return write, write(nil)
}

// exportAudit writes the entries of all heads, from now on, until ctx ends.
func (s *Server) exportAudit(ctx context.Context) error {
	write, err := openAudit(s.cfg.Audit)
	if err != nil {
		return fmt.Errorf("--audit %s: %w", s.cfg.Audit, err)
	}
	var after int64
	for ctx.Err() == nil {
		after, err = s.store.FollowCold(ctx, state.AuditStream, after, func(cold store.ColdEntry) {
			line, err := auditLine(cold)
			if err == nil {
				err = write(line)
			}
			if err != nil {
				s.cfg.Log.Error("cannot write an entry of the audit log; it is in the store: trivet audit", "to",
					s.cfg.Audit, "entry", cold.ID, "error", err)
			}
		})
		if ctx.Err() == nil {
			s.cfg.Log.Warn("lost the audit log; following it again", "error", err)
			_ = wait.Sleep(ctx, time.Second)
		}
	}
	return nil
}
