"""OpenCL backend: any OpenCL 1.2 device through pyopencl; PoCL's CPU device where there is no GPU."""
