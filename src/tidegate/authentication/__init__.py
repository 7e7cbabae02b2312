"""Who a client is: passwords, certificates, capabilities and the keys of their issuers."""
