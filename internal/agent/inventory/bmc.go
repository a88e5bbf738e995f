package inventory

import (
	"context"
	"io/fs"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// bmcAddress asks the machine's own management controller for its LAN address. Empty when there is none, or it is slow.
func bmcAddress(ctx context.Context, root fs.FS) string {
	if !isThere(root, "dev/ipmi0") {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := client.NewOpenClient()
	if err != nil {
		return ""
	}
	if err := c.Connect(ctx); err != nil {
		return ""
	}
	defer c.Close(context.WithoutCancel(ctx))
	var ip types.LanConfigParam_IP
	if err := c.GetLanConfigParamFor(ctx, 1, &ip); err != nil || ip.IP.IsUnspecified() {
		return ""
	}
	return ip.IP.String()
}
