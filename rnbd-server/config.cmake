rnbd_library(rnbd_server_config SOURCES config.cpp kernel_listener.cpp LINK rnbd_config rnbd_messages)
