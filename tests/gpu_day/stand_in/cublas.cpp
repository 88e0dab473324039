// cuBLAS for the pretended GPU, as NVIDIA's own rejects the stand-in: handles and products of matrices. Other functions
// that torch imports are generated; each says its name and fails.

#include "product.h"

using namespace stand_in;

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

STAND_IN_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return use() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

STAND_IN_EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->pointers;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int a_ld, long long a_stride, const void* b,
    cudaDataType b_type, int b_ld, long long b_stride, const void* beta, void* c, cudaDataType c_type, int c_ld,
    long long c_stride, int batches, cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC) {
    return CUBLAS_STATUS_NOT_SUPPORTED;  // its scales are halves
  }
  const cudaDataType scales = compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
  const Matrix result{c, c_type, c_ld, c_stride};
  const Product product{.m = m,
                        .n = n,
                        .k = k,
                        .batches = batches,
                        .alpha = scale(alpha, scales),
                        .beta = scale(beta, scales),
                        .a = {a, a_type, a_ld, a_stride, is_transposed(a_operation)},
                        .b = {b, b_type, b_ld, b_stride, is_transposed(b_operation)},
                        .c = result,
                        .d = result};
  return run(product, handle->stream);
}

STAND_IN_EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_operation,
                                            cublasOperation_t b_operation, int m, int n, int k, const void* alpha,
                                            const void* a, cudaDataType a_type, int a_ld, const void* b,
                                            cudaDataType b_type, int b_ld, const void* beta, void* c,
                                            cudaDataType c_type, int c_ld, cublasComputeType_t compute,
                                            cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, a_operation, b_operation, m, n, k, alpha, a, a_type, a_ld, 0, b, b_type,
                                    b_ld, 0, beta, c, c_type, c_ld, 0, 1, compute, algorithm);
}

namespace {

template <class T>
constexpr cudaDataType kType = sizeof(T) == 8 ? CUDA_R_64F : CUDA_R_32F;

template <class T>
cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation, int m, int n,
                    int k, const T* alpha, const T* a, int a_ld, long long a_stride, const T* b, int b_ld,
                    long long b_stride, const T* beta, T* c, int c_ld, long long c_stride, int batches) {
  return cublasGemmStridedBatchedEx(handle, a_operation, b_operation, m, n, k, alpha, a, kType<T>, a_ld, a_stride, b,
                                    kType<T>, b_ld, b_stride, beta, c, kType<T>, c_ld, c_stride, batches,
                                    sizeof(T) == 8 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// As rows: y^T = alpha x^T op(a)^T + beta y^T.
template <class T>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t operation, int rows, int columns, const T* alpha,
                    const T* a, int a_ld, const T* x, int x_step, const T* beta, T* y, int y_step) {
  const bool is_plain = operation == CUBLAS_OP_N;
  return gemm<T>(handle, CUBLAS_OP_N, is_plain ? CUBLAS_OP_T : CUBLAS_OP_N, 1, is_plain ? rows : columns,
                 is_plain ? columns : rows, alpha, x, x_step, 0, a, a_ld, 0, beta, y, y_step, 0, 1);
}

}  // namespace

#define STAND_IN_PRODUCTS(letter, T)                                                                                   \
  STAND_IN_EXPORT cublasStatus_t cublas##letter##gemm_v2(                                                              \
      cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation, int m, int n, int k,        \
      const T* alpha, const T* a, int a_ld, const T* b, int b_ld, const T* beta, T* c, int c_ld) {                     \
    return gemm<T>(handle, a_operation, b_operation, m, n, k, alpha, a, a_ld, 0, b, b_ld, 0, beta, c, c_ld, 0, 1);     \
  }                                                                                                                    \
  STAND_IN_EXPORT cublasStatus_t cublas##letter##gemmStridedBatched(                                                   \
      cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation, int m, int n, int k,        \
      const T* alpha, const T* a, int a_ld, long long a_stride, const T* b, int b_ld, long long b_stride,              \
      const T* beta, T* c, int c_ld, long long c_stride, int batches) {                                                \
    return gemm<T>(handle, a_operation, b_operation, m, n, k, alpha, a, a_ld, a_stride, b, b_ld, b_stride, beta, c,    \
                   c_ld, c_stride, batches);                                                                           \
  }                                                                                                                    \
  STAND_IN_EXPORT cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, cublasOperation_t operation, int rows, \
                                                         int columns, const T* alpha, const T* a, int a_ld,            \
                                                         const T* x, int x_step, const T* beta, T* y, int y_step) {    \
    return gemv<T>(handle, operation, rows, columns, alpha, a, a_ld, x, x_step, beta, y, y_step);                      \
  }

STAND_IN_PRODUCTS(S, float)
STAND_IN_PRODUCTS(D, double)
