#error "the block emulator has no asynchronous copies"
