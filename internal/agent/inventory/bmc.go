package inventory

import (
	"context"
	"io/fs"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// bmc reads the LAN address of the machine's BMC and the version of its firmware; empty where it has none, or does not
// answer in time.
func bmc(ctx context.Context, root fs.FS) (address, version string) {
	if !isThere(root, "dev/ipmi0") {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := client.NewOpenClient()
	if err != nil {
		return "", ""
	}
	if err := c.Connect(ctx); err != nil {
		return "", ""
	}
	defer c.Close(context.WithoutCancel(ctx))
	if id, err := c.GetDeviceID(ctx); err == nil {
		version = clip(id.FirmwareVersionStr())
	}
	var ip types.LanConfigParam_IP
	if err := c.GetLanConfigParamFor(ctx, 1, &ip); err != nil || ip.IP.IsUnspecified() {
		return "", version
	}
	return ip.IP.String(), version
}
