#error "the block emulator has no tensor cores (wmma)"
