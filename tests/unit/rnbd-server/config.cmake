rnbd_test(unit_server_config LABELS unit SOURCES config.cpp LINK rnbd_server_config)
target_compile_definitions(unit_server_config PRIVATE
  RNBD_EXAMPLE="${PROJECT_SOURCE_DIR}/config/rnbd-server.yaml")
