#error "the block emulator has no cooperative groups: use __syncthreads, __syncwarp and shuffles"
