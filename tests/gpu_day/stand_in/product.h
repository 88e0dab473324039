// A product of matrices, as cuBLAS and cublasLt describe it.

#pragma once

#include <cublas_v2.h>

#include <cstdint>

#include "device.h"

namespace stand_in {

struct Matrix {
  const void* data;
  cudaDataType type;
  std::int64_t ld;  // columns lie this far apart, in elements
  std::int64_t stride = 0;
  bool is_transposed = false;
};

// d = alpha a b + beta c, plus a bias for each row; matrices are stored by columns.
struct Product {
  std::int64_t m, n, k;
  std::int64_t batches;
  double alpha, beta;
  Matrix a, b, c, d;
  const void* bias = nullptr;
  cudaDataType bias_type = CUDA_R_32F;
};

// Of an element, in bytes; 0 for a type without products.
std::int64_t size_of(cudaDataType type);
// The first value, which cuBLAS's callers give by address.
double scale(const void* value, cudaDataType type);
inline bool is_transposed(cublasOperation_t operation) { return operation != CUBLAS_OP_N; }
// Runs or records a product whose sizes are valid and whose matrices the pretended device holds, as a GPU needs.
cublasStatus_t run(const Product& product, cudaStream_t stream);

}  // namespace stand_in
