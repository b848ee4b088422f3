"""The public interface of Cerberank."""
