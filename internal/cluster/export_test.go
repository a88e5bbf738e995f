package cluster

// Kill stops the member without a transfer of its leadership, as the end of its process does.
func (m *Member) Kill() {
	m.once.Do(func() {
		close(m.closing)
		m.running.Wait()
		_ = m.client.Close()
		m.etcd.Server.HardStop()
		m.etcd.Close()
		_ = m.lock.Close()
	})
}
