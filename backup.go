package trivet

// BackupRequest is the body of a request for a backup of the cluster. The response is the file of the backup.
type BackupRequest struct {
	// Contents: the caller saves the contents of the blobs with it.
	Contents bool `json:"contents,omitempty"`
}
