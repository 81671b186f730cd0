rnbd_library(rnbd_server_config SOURCES config.cpp LINK rnbd_config)
