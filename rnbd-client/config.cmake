rnbd_library(rnbd_client_config SOURCES config.cpp LINK rnbd_config)
